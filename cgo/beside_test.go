//go:build torch

package cgo

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cache's steps go on beside a backward, which asks libtorch for deterministic algorithms: products on CUDA, which throw under
// that setting of the whole process, wait for its end.
func TestDecoderBesideABackward(t *testing.T) {
	d := decodings()[len(decodings())-1] // bfloat16, whose backward is flash attention's
	t.Setenv("STAND_INS", "slow-backward")
	m := d.of(t, deviceModel(t, 5))
	k := d.cache(t, m, 8)
	r := rand.New(rand.NewPCG(7, 7))
	b, ids := plain(randomIDs(r, 24, m.config.VocabSize), 1), randomIDs(r, 9, m.config.VocabSize)
	var joined sync.WaitGroup
	done := make(chan struct{})
	steps, err := 0, error(nil)
	joined.Go(func() {
		for ; err == nil; steps++ {
			s := &Step{MaxBlocks: 2}
			s.Outputs = []Output{greedy(add(s, ids, 0, []int32{0, 1}))}
			err = k.Step(s)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range 20 {
		waveLoss(t, m, b, ForwardOptions{})
	}
	close(done)
	joined.Wait()
	require.NoError(t, err)
	require.Greater(t, steps, 10)
}
