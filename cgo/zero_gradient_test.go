//go:build torch

package cgo

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a device the first backward behind zeros writes the matrices' gradients instead of adding to them: what stood there counts for
// nothing, and what a second backward brings is added.
func TestGradientsBehindZeros(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		m := d.of(t, deviceModel(t, 5))
		o, err := NewOptimizer(m, DefaultAdamW(), nil)
		require.NoError(t, err)
		defer o.Close()
		r := rand.New(rand.NewPCG(7, 7))
		a, b := plain(randomIDs(r, 24, m.config.VocabSize), 1), plain(randomIDs(r, 31, m.config.VocabSize), 1)
		backward := func(of ...*Batch) map[string][]float32 {
			for _, x := range of {
				waveLoss(t, m, x, ForwardOptions{})
			}
			return gradients(t, m)
		}
		first := backward(a) // behind gradients that were made for it
		require.NoError(t, o.ZeroGrad())
		second := backward(b)
		require.NoError(t, o.ZeroGrad())
		both := backward(a, b)
		moved := 0
		for name, x := range both {
			sum := make([]float32, len(x))
			for i := range sum {
				if sum[i] = first[name][i] + second[name][i]; x[i] != 0 {
					moved++
				}
			}
			require.LessOrEqual(t, relative(t, x, sum), 1e-5, name)
		}
		require.Greater(t, moved, 1000)

		_, err = o.Step(0, 1) // at a rate of 0 it changes moments alone, and clears
		require.NoError(t, err)
		for name, x := range backward(a) {
			require.LessOrEqual(t, relative(t, x, first[name]), 1e-6, name)
		}
		require.NoError(t, o.Release()) // the gradient waits in host memory
		waveLoss(t, m, b, ForwardOptions{})
		require.NoError(t, o.Restore())
		for name, x := range gradients(t, m) {
			require.LessOrEqual(t, relative(t, x, both[name]), 1e-5, name)
		}
		for name, x := range backward(a) {
			sum := make([]float32, len(x))
			for i := range sum {
				sum[i] = both[name][i] + first[name][i]
			}
			require.LessOrEqual(t, relative(t, x, sum), 1e-5, name)
		}
	})
}
