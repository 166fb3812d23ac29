package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// Keys hold when a run goes on where its agents live on. A service's agents begin anew: the one of before must not sample beside its successor, in one
// trajectory with it.
func TestKeysOfARunThatGoesOn(t *testing.T) {
	for name, online := range map[string]bool{"a service": false, "agents that live on": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			key := func() string {
				s := &Session{Job: &job.Job{}, Guests: &Guests{runner: &external.Callback{}}}
				s.Job.Agent.Online, s.Guests.job = online, s.Job
				s.Sampler.External = s.Guests.sampled()
				require.NoError(t, s.Guests.Keep(dir, s.Sampler.External))
				return sessionkey.Of(s.Sampler.External.Secret, "run/train-0-0-0")
			}
			before, after := key(), key()
			_, err := os.Stat(filepath.Join(dir, "gateway.key"))
			if online {
				require.NoError(t, err)
				require.Equal(t, before, after)
			} else {
				require.ErrorIs(t, err, os.ErrNotExist)
				require.NotEqual(t, before, after)
			}
		})
	}
}
