package session

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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

// The routes of agents that come for tasks change nothing for the gateway beside them: a path with a slash too many, as clients make of a base URL that
// ends with one, is answered and not sent elsewhere. A path with a key or /v1 in front, as a base URL may have them, is the same route.
func TestRoutesBesideTheGateway(t *testing.T) {
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, text+" "+r.Method+" "+r.URL.Path)
		}
	}
	h := withRoutes(say("gateway"), map[string]http.HandlerFunc{"/agentfly/task": say("task")})
	for request, want := range map[string]string{
		"POST /agentfly/task": "task POST /agentfly/task", "POST //agentfly/task": "task POST //agentfly/task", "GET /agentfly/task": "gateway GET /agentfly/task",
		"POST /s/KEY/agentfly/task": "task POST /s/KEY/agentfly/task", "POST /s/KEY/v1/agentfly/task": "task POST /s/KEY/v1/agentfly/task", "POST /v1/agentfly/task": "task POST /v1/agentfly/task",
		"POST /v1/chat/completions": "gateway POST /v1/chat/completions", "POST //v1/chat/completions": "gateway POST //v1/chat/completions",
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{Method: method, URL: &url.URL{Path: path}, Host: "h"})
		require.Equal(t, http.StatusOK, w.Code, request)
		require.Equal(t, want, w.Body.String())
	}
}
