//go:build torch

package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// rollout.cut: filter leaves a trajectory out whose completion was cut: neither its tokens nor its reward move anything.
func TestFilteredCutTrajectories(t *testing.T) {
	p := policytest.Make(t, 3)
	tr := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	b := someBatch(t, tr, 7, 0)
	all, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	cut := b.Groups[1].Trajectories[2]
	cut.StopReason, cut.Turns = trajectory.StopMaxTokens, []trajectory.Turn{{FinishReason: trajectory.FinishLength}}
	require.True(t, cut.Cut())
	scored, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	require.Len(t, scored.units, len(all.units))
	b.FilterCut = true
	filtered, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	require.Len(t, filtered.units, len(all.units)-1)
	require.Equal(t, 1, filtered.metrics.Filtered)
	require.Zero(t, filtered.metrics.Failed)
	for _, u := range filtered.units {
		require.NotEqual(t, cut.ID, u.name)
	}
	require.True(t, filtered.records[1][2].Failed, "its reward counts in no baseline")
}

// A greedy rollout is filtered like any other: its reward is no baseline, so its group says nothing.
func TestFilteredGreedyRollouts(t *testing.T) {
	tr := makeTrainer(t, policytest.Make(t, 3), resolveBlock(t, "advantage: remax"), tinyConfig())
	b := someBatch(t, tr, 7, 0)
	for _, g := range b.Groups {
		g.Greedy = &trajectory.Trajectory{StopReason: trajectory.StopAnswer}
	}
	b.Groups[1].Greedy = &trajectory.Trajectory{StopReason: trajectory.StopMaxTokens, Turns: []trajectory.Turn{{FinishReason: trajectory.FinishLength}}}
	b.Groups[1].Trajectories[0].Fail(trajectory.OriginTeacher, "it has no logprobs") // whose stop reason stays an answer
	all, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	require.Len(t, all.units, 11)
	b.FilterCut = true
	filtered, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	require.Len(t, filtered.units, 8)
	for _, u := range filtered.units {
		require.NotEqual(t, 1, u.group)
	}
	require.Equal(t, 3, filtered.metrics.Filtered)
	require.Equal(t, 1, filtered.metrics.Failed)
}
