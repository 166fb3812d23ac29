package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// What an update takes in is one rule: a trajectory that finished with tokens to learn from, that is not filtered, and whose group has its baseline.
func TestWhatAnUpdateTakesIn(t *testing.T) {
	sampled := func(set ...func(*trajectory.Trajectory)) *trajectory.Trajectory {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1})
		require.NoError(t, s.AppendResponse([]int32{2}, []float32{-1}, []int32{0}))
		out := &trajectory.Trajectory{Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{{CompletionStart: 1, CompletionEnd: 2}}}
		for _, f := range set {
			f(out)
		}
		return out
	}
	fails := func(t *trajectory.Trajectory) { t.Fail(trajectory.OriginReward, "gone") }
	cut := func(t *trajectory.Trajectory) {
		t.StopReason, t.Turns[0].FinishReason = trajectory.StopMaxTokens, trajectory.FinishLength
	}
	empty := func(t *trajectory.Trajectory) { t.Samples = nil }
	for name, c := range map[string]struct {
		t, greedy      *trajectory.Trajectory
		want, filtered Fate
	}{
		"sampled":           {sampled(), nil, Taken, Taken},
		"failed":            {sampled(fails, cut), nil, Failed, Failed},
		"cut":               {sampled(cut), nil, Taken, Filtered},
		"empty":             {sampled(empty), nil, Empty, Empty},
		"with a baseline":   {sampled(), sampled(), Taken, Taken},
		"baseline failed":   {sampled(), sampled(fails), Failed, Failed},
		"baseline cut":      {sampled(), sampled(cut), Taken, Filtered},
		"failed beside cut": {sampled(fails), sampled(cut), Failed, Failed},
		"cut beside failed": {sampled(cut), sampled(fails), Failed, Filtered},
		"empty beside cut":  {sampled(empty), sampled(cut), Empty, Filtered},
	} {
		require.Equal(t, c.want, FateOf(c.t, c.greedy, false), name)
		require.Equal(t, c.filtered, FateOf(c.t, c.greedy, true), name)
	}
}
