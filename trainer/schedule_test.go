package trainer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchedule(t *testing.T) {
	rates := func(s Schedule, n int) []float64 {
		require.NoError(t, s.validate())
		out := make([]float64, n)
		for i := range out {
			out[i] = s.At(i)
		}
		return out
	}
	require.InDeltaSlice(t, []float64{2, 4, 6, 8, 8, 8}, rates(Schedule{LearningRate: 8, Warmup: 4}, 6), 1e-12)
	require.InDeltaSlice(t, []float64{4, 8, 8, 6, 4, 2, 0, 0}, rates(Schedule{LearningRate: 8, Kind: "linear", Warmup: 2, Total: 6}, 8), 1e-12)
	// cosine from 8 to 2 over 4 steps: 2 + 6 * (1 + cos(pi * i/4))/2
	require.InDeltaSlice(t, []float64{8, 7.1213203, 5, 2.8786797, 2, 2}, rates(Schedule{LearningRate: 8, Kind: "cosine", Total: 4, FinalRatio: 0.25}, 6), 1e-6)
	for _, bad := range []Schedule{
		{},
		{LearningRate: 1, Kind: "step"},
		{LearningRate: 1, Warmup: -1},
		{LearningRate: 1, Kind: "cosine"},
		{LearningRate: 1, Kind: "linear", Warmup: 3, Total: 3},
		{LearningRate: 1, FinalRatio: 2},
	} {
		require.Error(t, bad.validate())
	}
}
