package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// qwen is the shape of a Qwen2.5 model whose head is its embeddings.
func qwen(hidden, intermediate, layers, heads, width int) *modelfile.Config {
	return &modelfile.Config{
		VocabSize: 151936, HiddenSize: hidden, IntermediateSize: intermediate, NumLayers: layers, NumHeads: heads, NumKVHeads: 2, HeadDim: width, QKVBias: true,
		TieWordEmbeddings: true,
	}
}

// The bound against the peak of libtorch's allocator in steps that an H200 took (docs/gpu.md): bfloat16, every token but the first of
// a sequence trained.
func TestBoundsOfDeviceSteps(t *testing.T) {
	half, one, three := qwen(896, 4864, 24, 14, 64), qwen(1536, 8960, 28, 12, 128), qwen(2048, 11008, 36, 16, 128)
	adapter := &cgo.AdapterConfig{Rank: 16, Alpha: 32, Targets: cgo.AdapterTargets[:]}
	for _, x := range []struct {
		name            string
		model           *modelfile.Config
		tokens, longest int
		checkpoint      int
		adapter         *cgo.AdapterConfig
		measured        float64 // GiB
	}{
		{"0.5B 8x1024", half, 8192, 1024, 0, nil, 14.6},
		{"0.5B 1x8192", half, 8192, 8192, 0, nil, 14.6},
		{"3B 1x8192", three, 8192, 8192, 0, nil, 70.4},
		{"1.5B 8x1024", one, 8192, 1024, 0, nil, 37.8},
		{"1.5B 16x1024", one, 16384, 1024, 0, nil, 48.9},
		{"3B 8x1024", three, 8192, 1024, 0, nil, 70.1},
		{"3B 16x1024", three, 16384, 1024, 0, nil, 88.0},
		{"7B 8x1024", seven(), 8192, 1024, cgo.AllLayers, nil, 132.1},
		{"7B 3x1024", seven(), 3072, 1024, 0, nil, 137.6},
		{"7B 8x1024, adapter", seven(), 8192, 1024, 0, adapter, 68.2},
		{"7B 8x1024, adapter, checkpoint", seven(), 8192, 1024, cgo.AllLayers, adapter, 47.7},
	} {
		s := Setting{Model: x.model, BFloat16: true, Tokens: x.tokens, Longest: x.longest, Ranks: 1, CUDA: true, Checkpoint: x.checkpoint, Adapter: x.adapter}
		most := float64(Of(s).Rank0[Device].Most) / (1 << 30)
		t.Logf("%s: at most %.1f GiB, measured %.1f: %.3f", x.name, most, x.measured, most/x.measured)
		require.Greater(t, most, x.measured, x.name)
		require.Less(t, most/x.measured, 1.08, x.name)
	}
}
