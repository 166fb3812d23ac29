package algorithms

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokenWeights(t *testing.T) {
	tokens := []int{3, 0, 5} // the second trajectory has no loss-mask token: it does not count in B
	for _, c := range []struct {
		block string
		want  []float64
	}{
		{"aggregation: token-mean", []float64{0.125, 0, 0.125}},
		{"aggregation: seq-mean-token-sum", []float64{0.5, 0, 0.5}},
		{"aggregation: seq-mean-token-mean", []float64{1.0 / 6, 0, 0.1}},
		{"{aggregation: seq-mean-token-sum-norm, max_tokens: 10}", []float64{0.05, 0, 0.05}},
	} {
		got, err := resolve(t, c.block).Aggregation.TokenWeights(tokens)
		require.NoError(t, err)
		require.Equal(t, c.want, got, c.block)
		got, err = resolve(t, c.block).Aggregation.TokenWeights([]int{0, 0})
		require.NoError(t, err)
		require.Equal(t, []float64{0, 0}, got)
	}
	_, err := resolve(t, "{}").Aggregation.TokenWeights([]int{1, -1})
	require.EqualError(t, err, "algorithms: trajectory 1 has -1 loss-mask tokens")
}
