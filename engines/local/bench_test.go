//go:build torch

package local

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

func smolLM2(b *testing.B) *cgo.Model {
	b.Helper()
	c := cgo.ModelConfig{
		VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30, NumHeads: 9, NumKVHeads: 3, HeadDim: 64,
		RMSNormEps: 1e-5, TieWordEmbeddings: true,
	}
	for i := range 32 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(100000, -float64(i)/32)))
	}
	m, err := cgo.NewModel(c, "cpu")
	require.NoError(b, err)
	b.Cleanup(func() { m.Close() })
	require.NoError(b, m.Init(1, 0.02))
	return m
}

// BenchmarkTurns is the sampling of a step of examples/calculator.yaml: 36 trajectories in 6 groups, which share 230
// tokens, and 40 more within a group; 20 tokens, an observation of 12, 20 tokens. The weights are new at each start.
func BenchmarkTurns(b *testing.B) {
	m := smolLM2(b)
	e, err := New(m, Options{MaxModelLen: 1024})
	require.NoError(b, err)
	defer e.Close()
	version := int32(0)
	for b.Loop() {
		version++
		require.NoError(b, e.Update(context.Background(), engines.Weights{Version: version, Apply: func(context.Context) error { m.Changed(); return nil }}))
		var wait sync.WaitGroup
		for i := range 36 {
			wait.Go(func() {
				prompt := slices.Concat(numbered(0, 230), numbered(1000*(1+i/6), 40))
				for turn := range 2 {
					c, err := e.Generate(context.Background(), engines.Request{
						ID: "r", Prompt: prompt, Seed: uint64(100*i + turn), Sampling: engines.Sampling{MaxTokens: 20, Temperature: 1, TopP: 1},
					})
					if err != nil {
						b.Error(err)
					}
					prompt = slices.Concat(prompt, c.TokenIDs, numbered(i, 12))
				}
			})
		}
		wait.Wait()
	}
	s := e.Stats()
	b.ReportMetric(float64(s.ComputedTokens)/float64(b.N), "rows/op")
	b.ReportMetric(float64(s.GeneratedTokens)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(s.Steps)/float64(b.N), "steps/op")
}
