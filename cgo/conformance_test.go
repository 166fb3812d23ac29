//go:build torch

package cgo_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines/enginetest"
	"github.com/agentfly/agentfly/engines/local"
)

// The local engine keeps its promises also where a device decodes.
func TestDecoderConformance(t *testing.T) {
	c := cgo.ModelConfig{
		VocabSize: 600, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 6, NumKVHeads: 2, HeadDim: 8, RMSNormEps: 1e-5, QKVBias: true, QKNorm: true,
	}
	for i := range c.HeadDim / 2 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(1000, -float64(i)/4)))
	}
	start := cgo.LiveHandles()
	cgo.OnDevices(t, func(t *testing.T, model func(t testing.TB, c cgo.ModelConfig) *cgo.Model, half bool) {
		enginetest.Run(t, func(t *testing.T) enginetest.Subject {
			m := model(t, c)
			require.NoError(t, m.Init(1, 0.15))
			e, err := local.New(m, local.Options{MaxModelLen: 300, Version: 5, Decoder: enginetest.Letters{}, BlockSize: 8, BFloat16: half})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			apart := 0.0
			if half {
				apart = 5e-2
			}
			return enginetest.Subject{
				Apart:  apart,
				Engine: e, Vocab: 600, Version: 5, Decode: enginetest.Letters{}.Decode, Distribution: true, Running: func() int { return e.Stats().Running + e.Stats().Waiting },
			}
		})
	})
	require.Equal(t, start, cgo.LiveHandles())
}
