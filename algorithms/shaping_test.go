package algorithms

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOverlongPenalty(t *testing.T) {
	// Limit 20, buffer 8, factor 0.5: free up to 12; at 16 half of the buffer is used, 0.5 * 4/8; at the limit and beyond 0.5.
	o := Overlong{Buffer: 8, Factor: 0.5}
	for tokens, want := range map[int]float64{0: 0, 12: 0, 13: -0.0625, 16: -0.25, 20: -0.5, 21: -0.5, 100: -0.5} {
		require.Equal(t, want, o.Penalty(tokens, 20), "%d tokens", tokens)
	}
	require.Zero(t, Overlong{}.Penalty(100, 20))
	require.Equal(t, -1.0, Overlong{Buffer: 30, Factor: 1}.Penalty(20, 20), "a buffer longer than the limit begins below 0 tokens")
	require.Equal(t, 1.0, resolve(t, "overlong: {buffer: 5, penalty: 1}").Overlong.Factor)
}

func TestInformative(t *testing.T) {
	require.False(t, Informative(nil))
	require.False(t, Informative([]float64{1}))
	require.False(t, Informative([]float64{0.1, 0.1, 0.1}))
	require.True(t, Informative([]float64{0, 0, 1e-9}))
	a, b := 0.1, 0.2
	require.False(t, Informative([]float64{a + b, 0.3, 0.3}), "a rounding error is no difference")
	require.False(t, Informative([]float64{1e9 * (a + b), 0.3e9}))
	require.True(t, Informative([]float64{1, math.NaN()}))
	require.True(t, Informative([]float64{0, math.Inf(1)}))
	require.False(t, Informative([]float64{math.Inf(1), math.Inf(1)}))
	require.True(t, resolve(t, "dynamic_sampling: true").DynamicSampling)
}
