//go:build torch

package trainer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// An estimator that reads no turns is told what the whole trajectory was paid; one that reads them finds each where it was paid.
func TestRewardsOfTurnsReachEveryEstimator(t *testing.T) {
	p := policytest.Make(t, 3)
	tr := makeTrainer(t, p, resolveBlock(t, "{advantage: dr_grpo}"), tinyConfig())
	b := someBatch(t, tr, 7, 0)
	paid := b.Groups[0].Trajectories[1]
	reward, half := paid.Reward, 0.5
	paid.Turns = oneTurn(paid)
	paid.Turns[0].Reward = &half
	for block, want := range map[string]float64{
		"{advantage: dr_grpo}": reward + half, "{advantage: arpo}": reward + half, "{advantage: reinforce_pp}": reward,
	} {
		a := resolveBlock(t, block)
		plan, err := newPlan(a, b)
		require.NoError(t, err)
		r := plan.records[0][1]
		require.Equal(t, want, r.Reward, block)
		if a.Estimator.Needs.Turns {
			require.Equal(t, half, *r.TurnRewards[0], block)
		} else {
			require.Nil(t, r.TurnRewards, "%s: it is in the reward", block)
		}
	}

	folded := *paid
	folded.Turns, folded.Reward = nil, reward+half
	whole := b
	group := *b.Groups[0]
	group.Trajectories = append([]*trajectory.Trajectory{}, group.Trajectories...)
	group.Trajectories[1] = &folded
	whole.Groups = append([]*trajectory.Group{&group}, b.Groups[1:]...)
	var advantages [2][][][]float64
	for i, b := range []Batch{b, whole} {
		plan, err := newPlan(tr.algorithm, b)
		require.NoError(t, err)
		advantages[i], err = tr.algorithm.Advantages(plan.records)
		require.NoError(t, err)
	}
	require.Equal(t, advantages[1], advantages[0])

	broken := math.NaN()
	paid.Turns[0].Reward = &broken
	_, err := newPlan(tr.algorithm, b)
	require.ErrorContains(t, err, "its reward is NaN")
}

// oneTurn is the turn that a trajectory of one sample consists of.
func oneTurn(t *trajectory.Trajectory) []trajectory.Turn {
	return []trajectory.Turn{{CompletionStart: 0, CompletionEnd: t.Samples[0].Len(), ObservationEnd: t.Samples[0].Len()}}
}
