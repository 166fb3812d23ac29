//go:build torch

package trainer

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// interleaved is a trajectory of an agent that asks in parallel, whose turns write two samples that are trained in turn, and one that is not.
func interleaved(t *testing.T) *trajectory.Trajectory {
	t.Helper()
	a, b, c := &trajectory.Sample{}, &trajectory.Sample{}, &trajectory.Sample{}
	var turns []trajectory.Turn
	sampled := float32(0)
	say := func(k int, s *trajectory.Sample, role trajectory.Role, n int) {
		s.AppendObservation([]int32{1, 2})
		from := s.Len()
		logprobs := make([]float32, n)
		for i := range logprobs {
			sampled -= 0.25
			logprobs[i] = sampled
		}
		require.NoError(t, s.AppendResponse(make([]int32, n), logprobs, make([]int32, n)))
		turns = append(turns, trajectory.Turn{Sample: k, CompletionStart: from, CompletionEnd: s.Len(), ObservationEnd: s.Len(), Role: role})
	}
	say(0, a, "", 2)
	say(1, b, "", 1)
	say(2, c, trajectory.RoleAuxiliary, 4)
	say(0, a, "", 1)
	say(1, b, "", 3)
	tr := &trajectory.Trajectory{ID: "x", Reward: 1, Samples: []*trajectory.Sample{a, b, c}, Turns: turns, StopReason: trajectory.StopAnswer}
	return tr.Trained(func(r trajectory.Role) bool { return r == trajectory.RoleAuxiliary })
}

// Each token of samples that interleave keeps its turn, and a sample without a token that is trained is left out.
func TestTurnsOfSamplesThatInterleave(t *testing.T) {
	trained := interleaved(t)
	p, err := newPlan(resolveBlock(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}"), Batch{Groups: []*trajectory.Group{{Trajectories: []*trajectory.Trajectory{trained}}}})
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 1, 2, 3, 3, 3}, p.records[0][0].Turn)
	require.Len(t, p.items, 2)
	require.Equal(t, []int{0, 1}, p.units[0].samples)
	require.NoError(t, p.estimate(resolveBlock(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}")))
	require.Equal(t, []float64{0, 0, 1. / 8, 1. / 8, 0, 0, 0.5}, p.advantage[0])
	require.Equal(t, []float64{0, 0, 1. / 4, 0, 0, 1, 1, 1}, p.advantage[1])
}

// A weight compares the old and the sampling logprob of one token, in whatever order the estimator reads the trajectory.
func TestCorrectionOfSamplesThatInterleave(t *testing.T) {
	a := resolveBlock(t, "{advantage: {name: turn, mode: discounted}, correction: {kind: seq_mask}}")
	p, err := newPlan(a, Batch{Groups: []*trajectory.Group{{Trajectories: []*trajectory.Trajectory{interleaved(t)}}}})
	require.NoError(t, err)
	micro, want := &MicroBatch{}, []float64{}
	for i, item := range p.items {
		p.old[i] = make([]float64, item.Sample.Len())
		for at, on := range item.Sample.ResponseMask {
			if on {
				off := 0.125 * float64(len(micro.Rows)-3)
				p.old[i][at] = float64(item.Sample.SamplingLogprobs[at]) + off
				micro.Rows, want = append(micro.Rows, Row{Item: i, Token: at}), append(want, math.Exp(off))
			}
		}
	}
	require.Equal(t, want, (&rowBuilder{plan: p, algorithm: a}).corrections(micro, nil, nil))
}

// A truncated trajectory goes on where its last token stands, in whatever sample that is.
func TestValueBehindSamplesThatInterleave(t *testing.T) {
	p := policytest.Make(t, 3)
	addCritic(t, p)
	tr := makeTrainer(t, p, resolveBlock(t, "{advantage: {name: gae, lambda: 1}, value: {coefficient: 1, clip: 10}}"), tinyConfig())
	cut := interleaved(t)
	cut.StopReason = trajectory.StopMaxTokens
	for last := range 2 {
		s := cut.Samples[last]
		from := s.Len()
		require.NoError(t, s.AppendResponse([]int32{5}, []float32{-1}, []int32{0}))
		cut.Turns = append(cut.Turns, trajectory.Turn{Sample: last, CompletionStart: from, CompletionEnd: s.Len(), ObservationEnd: s.Len(), FinishReason: trajectory.FinishLength})
		plan, err := newPlan(tr.algorithm, Batch{Groups: []*trajectory.Group{{Trajectories: []*trajectory.Trajectory{cut}}}})
		require.NoError(t, err)
		require.NoError(t, newStepRun(tr, plan, 0).early(t.Context()))
		ends := []float32{valuesOf(t, p.Model, cut.Samples[0])[cut.Samples[0].Len()-1], valuesOf(t, p.Model, cut.Samples[1])[cut.Samples[1].Len()-1]}
		require.Greater(t, math.Abs(float64(ends[0]-ends[1])), 1e-3)
		require.InDelta(t, ends[last], plan.bootstrap[0], 1e-5)
	}
}
