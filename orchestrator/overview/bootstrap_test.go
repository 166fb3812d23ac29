package overview

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The interval of n differences of which half are 1 is that of a binomial share: 0.5 ± 1.96·√(0.25/n).
func TestBootstrap(t *testing.T) {
	differences := make([]float64, 400)
	for i := range differences {
		differences[i] = float64(i % 2)
	}
	mean, low, high := bootstrap(differences)
	require.InDelta(t, 0.5, mean, 1e-12)
	require.InDelta(t, 0.451, low, 0.006)
	require.InDelta(t, 0.549, high, 0.006)
	mean, low, high = bootstrap(nil)
	require.Equal(t, []float64{0, 0, 0}, []float64{mean, low, high})
	mean, low, high = bootstrap([]float64{0.25})
	require.Equal(t, []float64{0.25, 0.25, 0.25}, []float64{mean, low, high})
}
