//go:build torch

package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// Turns of an agent that asks in parallel write its samples in turn: each token keeps its turn, and a sample without a token that is trained is left out.
func TestTurnsOfSamplesThatInterleave(t *testing.T) {
	a, b, c := &trajectory.Sample{}, &trajectory.Sample{}, &trajectory.Sample{}
	var turns []trajectory.Turn
	say := func(k int, s *trajectory.Sample, role trajectory.Role, n int) {
		s.AppendObservation([]int32{1, 2})
		from := s.Len()
		require.NoError(t, s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n)))
		turns = append(turns, trajectory.Turn{Sample: k, CompletionStart: from, CompletionEnd: s.Len(), ObservationEnd: s.Len(), Role: role})
	}
	say(0, a, "", 2)
	say(1, b, "", 1)
	say(2, c, trajectory.RoleAuxiliary, 4)
	say(0, a, "", 1)
	say(1, b, "", 3)
	tr := &trajectory.Trajectory{ID: "x", Reward: 1, Samples: []*trajectory.Sample{a, b, c}, Turns: turns, StopReason: trajectory.StopAnswer}
	trained := tr.Trained(func(r trajectory.Role) bool { return r == trajectory.RoleAuxiliary })
	p, err := newPlan(resolveBlock(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}"), Batch{Groups: []*trajectory.Group{{Trajectories: []*trajectory.Trajectory{trained}}}})
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 1, 2, 3, 3, 3}, p.records[0][0].Turn)
	require.Len(t, p.items, 2)
	require.Equal(t, []int{0, 1}, p.units[0].samples)
	require.NoError(t, p.estimate(resolveBlock(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}")))
	require.Equal(t, []float64{0, 0, 1. / 8, 1. / 8, 0, 0, 0.5}, p.advantage[0])
	require.Equal(t, []float64{0, 0, 1. / 4, 0, 0, 1, 1, 1}, p.advantage[1])
}
