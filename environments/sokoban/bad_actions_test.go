package sokoban

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// An action that is none counts as a step: the episode is cut after as many as any other.
func TestImpossibleActionsCount(t *testing.T) {
	w := &world{p: Params{6, 1, 40}}
	_, err := w.Reset(t.Context(), environments.Start{Seed: 1})
	require.NoError(t, err)
	for n := range 40 {
		r, err := w.Step(t.Context(), environments.Action{Text: "jump"})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Equal(t, n == 39, r.Truncated, "step %d", n+1)
		require.Zero(t, r.Reward)
	}
}
