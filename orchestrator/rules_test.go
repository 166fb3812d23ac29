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
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// What an older program recorded under rules that changed since begins anew instead of failing; what goes on goes on.
func TestATrajectoryOfAnOlderProgramBeginsAnew(t *testing.T) {
	asked := 0
	r := newRollout(t, func(q engines.Request) (engines.Completion, error) {
		asked++
		if strings.Contains(lastTurn(q), "<result>") {
			return say("<answer>2</answer>")
		}
		return say("<calculator>1+1</calculator>")
	})
	place := rollout.Place{Phase: "train", Task: task("q", "1+1?", "2")}
	want := r.Sample(t.Context(), place)
	require.Empty(t, want.Err)
	require.Len(t, want.Turns, 2)
	for name, change := range map[string]func(s *trajectory.Sample, turn *trajectory.Turn){
		"the prompt":      func(s *trajectory.Sample, _ *trajectory.Turn) { s.TokenIDs[3]++ },
		"the observation": func(s *trajectory.Sample, turn *trajectory.Turn) { s.TokenIDs[turn.CompletionEnd]++ },
		"nothing":         func(*trajectory.Sample, *trajectory.Turn) {},
	} {
		past := *want
		past.StopReason, past.Turns = "", slices.Clone(want.Turns[:1])
		s := *want.Samples[0]
		s.TokenIDs = slices.Clone(s.TokenIDs)
		past.Samples = []*trajectory.Sample{&s}
		change(&s, &past.Turns[0])
		var anew []string
		again := *r
		again.Recovered = func(string) (*trajectory.Trajectory, bool) { return &past, false }
		if name != "nothing" { // of this program's own records
			require.Contains(t, again.Sample(t.Context(), place).Err, name[4:]+" is not the one that was recorded")
		}
		again.Restart = func(id string, err error) {
			require.ErrorContains(t, err, name[4:]+" is not the one that was recorded")
			anew = append(anew, id)
		}
		asked = 0
		got := again.Sample(t.Context(), place)
		require.Equal(t, timeless(want), timeless(got), name)
		if name == "nothing" {
			require.Empty(t, anew)
			require.Equal(t, 1, asked)
			continue
		}
		require.Equal(t, []string{place.ID()}, anew, name)
		require.Equal(t, 2, asked)
	}
}

// What begins anew takes the place of what was recorded, in the store too.
func TestTheStoreHoldsWhatBeganAnew(t *testing.T) {
	r := newRollout(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(lastTurn(q), "<result>") {
			return say("<answer>2</answer>")
		}
		return say("<calculator>1+1</calculator>")
	})
	place := rollout.Place{Phase: "train", Task: task("q", "1+1?", "2")}
	want := r.Sample(t.Context(), place)
	past := *want
	past.StopReason, past.Turns = "", want.Turns[:1]
	s := *want.Samples[0]
	s.TokenIDs = slices.Clone(s.TokenIDs)
	s.TokenIDs[3]++
	past.Samples = []*trajectory.Sample{&s}

	path := filepath.Join(t.TempDir(), store.File)
	db, err := store.Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	require.NoError(t, db.AddTurn(t.Context(), &past))
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
	require.Equal(t, timeless(want), timeless(got))
	require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
	require.NoError(t, db.Close())
	db, err = store.Open(path)
	require.NoError(t, err)
	defer db.Close()
	log, err = db.Recover(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, timeless(want), timeless(log.Outstanding[0].Finished[0]))
}

// A replay that differs says that an older program recorded the run, where one did.
func TestAReplayNamesTheOlderProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes["sync"]
		r, _ := napping(t, m.settings, m.algorithm(), 2)
		require.NoError(t, r.steps(t.Context()))
		rlOf(r).feed.Close()
		for _, c := range []struct {
			fact  string
			older bool
		}{{"", true}, {"1 2", true}, {"2", false}} {
			require.NoError(t, r.folder.DB.SetFact(t.Context(), recovery.RulesFact, c.fact))
			from, err := store.OpenReader(storePath(t, r))
			require.NoError(t, err)
			again, _ := napping(t, m.settings, m.algorithm(), 2)
			again.weights.Use(goingOn{again.weights.Engine()})
			again.rollout.Prefix = []trajectory.Message{trajectory.Text("system", "Other.")}
			err = again.replayed(t.Context(), from, r.folder.Dir, 0, &bytes.Buffer{})
			require.ErrorContains(t, err, "its prompt has other tokens than the recorded one")
			require.Equal(t, c.older, strings.Contains(err.Error(), "recorded by an older program"), err)
			require.NoError(t, from.Close())
		}
	})
}
