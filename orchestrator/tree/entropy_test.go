package tree

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bounds hold for random distributions, however many of their probabilities are known, and meet where all are.
func TestTheRemainderOfAnEntropyIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		n := 2 + rng.IntN(60)
		logits, sum := make([]float64, n), 0.0
		sharp := 6 * rng.Float64()
		for i := range logits {
			logits[i] = sharp * rng.NormFloat64()
			sum += math.Exp(logits[i])
		}
		exact := 0.0
		logprobs := make([]float32, n)
		for i, x := range logits {
			x -= math.Log(sum)
			exact -= math.Exp(x) * x
			logprobs[i] = float32(x)
		}
		slices.Sort(logprobs)
		slices.Reverse(logprobs)
		k := 1 + rng.IntN(n)
		low, high := EntropyBounds(logprobs[:k], n)
		require.LessOrEqual(t, low, exact+1e-5)
		require.GreaterOrEqual(t, high, exact-1e-5)
		low, high = EntropyBounds(logprobs, n)
		require.InDelta(t, exact, low, 1e-5)
		require.InDelta(t, exact, high, 1e-5)
	}
	low, high := EntropyBounds([]float32{0, float32(math.Inf(-1))}, 100)
	require.Equal(t, [2]float64{0, 0}, [2]float64{low, high}, "a certain token")
	low, high = EntropyBounds(nil, 100)
	require.InDelta(t, math.Log(100), high, 1e-12)
	require.Zero(t, low)
	require.Equal(t, 2.0, First([]float64{1, 3, 100}, 2))
	require.Equal(t, 0.0, First(nil, 2))
}
