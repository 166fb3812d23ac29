package orchestrator

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// What begins anew takes the place of what was recorded, in the store too.
func TestTheStoreHoldsWhatBeganAnew(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(q), "<result>") {
			return rollouttest.Say("<answer>2</answer>")
		}
		return rollouttest.Say("<calculator>1+1</calculator>")
	})
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	want := r.Sample(t.Context(), place)
	recovered := *want
	recovered.StopReason, recovered.Turns = "", want.Turns[:1]
	s := *want.Samples[0]
	s.TokenIDs = slices.Clone(s.TokenIDs)
	s.TokenIDs[3]++
	recovered.Samples = []*trajectory.Sample{&s}

	path := filepath.Join(t.TempDir(), store.File)
	db, err := store.Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	require.NoError(t, db.AddTurn(t.Context(), &recovered))
	require.NoError(t, db.Close())
	db, err = store.Open(path)
	require.NoError(t, err)
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	again := *r
	older, _, err := recovery.TakeRules(t.Context(), db, true)
	require.NoError(t, err)
	if older {
		again.Restart = recovery.Restart(db, func(string) {})
	}
	again.Record = db.AddTurn
	again.Recovered = func(string) (*trajectory.Trajectory, bool) { return log.Outstanding[0].Partial[0], false }
	got := again.Sample(t.Context(), place)
	require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got))
	require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
	require.NoError(t, db.Close())
	db, err = store.Open(path)
	require.NoError(t, err)
	defer db.Close()
	log, err = db.Recover(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(log.Outstanding[0].Finished[0]))
}

// A replay that differs says that an older program recorded the run, where one did.
func TestAReplayNamesTheOlderProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes["sync"]
		r, _ := napping(t, m.settings, m.algorithm(), 2)
		require.NoError(t, r.training().steps(t.Context()))
		r.objective.Stop()
		for _, c := range []struct {
			fact  string
			older bool
		}{{"", true}, {"1 2", true}, {"2", false}} {
			require.NoError(t, r.folder.DB.SetFact(t.Context(), recovery.RulesFact, c.fact))
			from, err := store.OpenReader(storePath(t, r))
			require.NoError(t, err)
			again, _ := napping(t, m.settings, m.algorithm(), 2)
			again.session.Weights.Use(goingOn{again.session.Weights.Engine()})
			again.session.Sampler.Prefix = []trajectory.Message{trajectory.Text("system", "Other.")}
			err = replaySteps(t.Context(), again, from, r.folder.Dir, 0, &bytes.Buffer{})
			require.ErrorContains(t, err, "its prompt has other tokens than the recorded one")
			require.Equal(t, c.older, strings.Contains(err.Error(), "recorded by an older program"), err)
			require.NoError(t, from.Close())
		}
	})
}
