package frozenlake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// An action that is none counts as a step: the episode is cut after as many as any other. It does not change where the next moves slip to, also not in
// an episode that goes on from its state.
func TestImpossibleActionsCount(t *testing.T) {
	w := &world{p: Params{4, 0.8, true, 16, 0}}
	begin := func(seed int64) {
		_, err := w.Reset(t.Context(), environments.Start{Seed: seed})
		require.NoError(t, err)
	}
	begin(1)
	for n := range 16 {
		r, err := w.Step(t.Context(), environments.Action{Text: "jump"})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Equal(t, n == 15, r.Truncated, "step %d", n+1)
	}
	play := func(seed int64, bad bool) (out []string) {
		for i := 0; ; i++ {
			if bad && i == 1 {
				_, err := w.Step(t.Context(), environments.Action{Text: "jump"})
				require.NoError(t, err)
				state, err := w.State(t.Context())
				require.NoError(t, err)
				begin(0)
				begin(seed)
				require.NoError(t, w.Restore(t.Context(), state))
			}
			r, err := w.Step(t.Context(), environments.Action{Text: names[i%4]})
			require.NoError(t, err)
			out = append(out, r.Anchor)
			if r.Over() || len(out) == 10 {
				return out
			}
		}
	}
	for seed := range int64(20) {
		begin(seed)
		if w.seed != seed {
			continue // other slips were taken
		}
		want := play(seed, false)
		begin(seed)
		require.Equal(t, want, play(seed, true), "seed %d", seed)
	}
}

// The id of a task names its map in every run.
func TestTaskIDs(t *testing.T) {
	ids := map[string]string{}
	for _, p := range []Params{{4, 0.8, false, 100, 0}, {4, 0.6, false, 100, 0}, {4, 0.85, false, 100, 0}, {5, 0.8, false, 100, 0}, {4, 0.8, true, 100, 0}} {
		s, err := New(p)
		require.NoError(t, err)
		tasks, err := s.(environments.Tasker).Tasks(environments.Train, 20)
		require.NoError(t, err)
		for _, task := range tasks {
			lake := string(generate(p, task.Fields["level"].(int64)))
			if known, ok := ids[task.ID]; ok {
				require.Equal(t, known, lake, task.ID)
			}
			ids[task.ID] = lake
		}
	}
	require.Len(t, ids, 100)
}
