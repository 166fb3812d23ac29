//go:build torch

package cgo

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// cuda skips a test where libtorch sees no CUDA device.
func cuda(t testing.TB) {
	t.Helper()
	if CUDADevices() == 0 {
		t.Skip("libtorch sees no CUDA device; scripts/gpu_check.sh runs this on a machine with one")
	}
}

// twins are the same model on the CPU and on the device.
func twins(t testing.TB, g golden) (cpu, device *Model) {
	t.Helper()
	for _, d := range []string{"cpu", "cuda"} {
		m, err := NewModel(g.Config, d)
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		for _, p := range m.Parameters() {
			require.NoError(t, m.SetParameter(p.Name, F32, decode(t, g.Parameters[p.Name].Data), p.Shape))
		}
		m.Changed()
		cpu, device = device, m
	}
	return cpu, device
}

// sameValues compares what twins hold for every parameter, and returns for how many of them it is not 0.
func sameValues(t *testing.T, cpu, device *Model, of func(*Model, string) ([]float32, error)) (moved int) {
	t.Helper()
	for _, p := range cpu.Parameters() {
		want, err := of(cpu, p.Name)
		require.NoError(t, err)
		got, err := of(device, p.Name)
		require.NoError(t, err)
		require.LessOrEqual(t, relative(t, got, want), 1e-3, p.Name)
		if slices.ContainsFunc(want, func(x float32) bool { return x != 0 }) {
			moved++
		}
	}
	return moved
}

// The device against the CPU's own kernels on a forest of shared prefixes: scores, gradients, and ten optimizer steps.
func TestCUDAAgreesWithTheCPU(t *testing.T) {
	cuda(t)
	for _, name := range goldenNames(t) {
		for _, o := range []ForwardOptions{{}, {Checkpoint: AllLayers}} {
			g := loadGolden(t, name)
			cpu, device := twins(t, g)
			b := plain(g.IDs, g.Temperature)
			models := []*Model{cpu, device}
			var scores [2][]float32
			var optimizers [2]*Optimizer
			for i, m := range models {
				logprobs, entropy, err := m.Logprobs(b)
				require.NoError(t, err)
				scores[i] = append(logprobs, entropy...)
				optimizers[i], err = NewOptimizer(m, AdamWConfig{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}, nil)
				require.NoError(t, err)
				defer optimizers[i].Close()
			}
			require.LessOrEqual(t, worst(t, scores[1], scores[0]), 2e-5)
			for range 10 {
				require.InDelta(t, waveLoss(t, cpu, b, o), waveLoss(t, device, b, o), 1e-4)
				sameValues(t, cpu, device, (*Model).Gradient)
				for _, o := range optimizers {
					_, err := o.Step(1e-3, 0.05)
					require.NoError(t, err)
				}
			}
			sameValues(t, cpu, device, (*Model).Parameter)
		}
	}
}

// clippedLoss is a clipped policy loss on the golden's tokens, with advantages of both signs, made of gotorch's own operations
// and ours: its value, and its gradient in the model.
func clippedLoss(t *testing.T, m *Model, g golden) float32 {
	t.Helper()
	ok := must(t)
	out, err := m.Forward(plain(g.IDs, 1), ForwardOptions{Grad: true})
	require.NoError(t, err)
	defer out.Close()
	current, err := Read(out.Logprobs)
	require.NoError(t, err)
	old, advantage, weight := make([]float32, len(current)), make([]float32, len(current)), make([]float32, len(current))
	for i := range current { // ratios about 1, 1.35 and 0.74: inside the clip, above it, below it
		old[i], advantage[i], weight[i] = current[i]-[]float32{0, 0.3, -0.3}[i%3], []float32{1, -2}[i%2], float32(i%4)/8
	}
	a := ok(FromFloats(m, advantage))
	ratio := ok(Exp(gotorch.Sub(out.Logprobs, ok(FromFloats(m, old)), 1)))
	loss := ok(Neg(ok(Minimum(gotorch.Mul(ratio, a), gotorch.Mul(ok(Clamp(ratio, 0.8, 1.2)), a)))))
	loss = ok(Where(ok(LT(a, ok(Affine(a, 0, 0)))), ok(Minimum(loss, ok(Affine(a, -1.1, 0)))), loss)) // dual clip
	total := ok(MaskedSum(loss, ok(FromFloats(m, weight))))
	value, err := Scalar(total)
	require.NoError(t, err)
	require.NoError(t, Backward(total))
	return value
}

// What losses are made of gives the same on CUDA tensors as on the CPU's, value and gradient.
func TestCUDATensors(t *testing.T) {
	cuda(t)
	g := loadGolden(t, "smollm")
	cpu, device := twins(t, g)
	require.InEpsilon(t, clippedLoss(t, cpu, g), clippedLoss(t, device, g), 1e-4)
	require.Positive(t, sameValues(t, cpu, device, (*Model).Gradient))
}

// halfAttention holds attention in bfloat16 on a device against the CPU's kernels in float32, on the same numbers rounded to bfloat16:
// output, gradients, log-sum-exp, and the same bits twice. bound is of the norm of the difference.
func halfAttention(t *testing.T, device string, p path, bound float64) {
	t.Helper()
	random := rand.New(rand.NewPCG(21, 22))
	rounded := func(n int) []float32 {
		x := normal(random, n)
		for i, v := range x {
			x[i] = math.Float32frombits((math.Float32bits(v) + 0x8000) &^ 0xffff)
		}
		return x
	}
	most := 0.0
	for _, shape := range [][3]int{{14, 2, 64}, {12, 2, 128}, {4, 4, 64}} {
		heads, keys, width := shape[0], shape[1], shape[2]
		exact, half := attentionModel(t, heads, keys, width, "cpu"), attentionModel(t, heads, keys, width, device)
		require.NoError(t, half.SetDType(BF16))
		require.NoError(t, setPath(half, p))
		batches := []*Batch{}
		for _, text := range []string{"2x150+3x40", "1x257", "3x64+2x1"} { // the last: single queries behind a prompt
			b, err := packedShape(text, 8)
			require.NoError(t, err)
			batches = append(batches, b)
		}
		for range 10 {
			batches = append(batches, randomForest(random))
		}
		for _, b := range batches {
			T := len(b.Tokens)
			qkv, dOut := rounded(T*(heads+2*keys)*width), rounded(T*heads*width)
			want, err := attention(exact, b, qkv, dOut)
			require.NoError(t, err)
			got, err := attention(half, b, qkv, dOut)
			require.NoError(t, err)
			again, err := attention(half, b, qkv, dOut)
			require.NoError(t, err)
			require.Equal(t, got, again, "the same bits again")
			for _, pair := range [][2][]float32{{got.out, want.out}, {got.gradient, want.gradient}} {
				most = max(most, relative(t, pair[0], pair[1]))
			}
			require.LessOrEqual(t, worst(t, got.lse, want.lse), 2e-2)
			require.LessOrEqual(t, most, bound)
		}
	}
	t.Logf("worst difference: %.1e", most)
}

// Libtorch's flash attention on forests. Emulated on a CPU, its roundings move output and gradients by 2e-3 to 4e-3.
func TestFlashOnCUDA(t *testing.T) {
	cuda(t)
	halfAttention(t, "cuda", pathFlash, 1e-2)
}

// The same formulation on the CPU, whose products are rounded to bfloat16 too.
func TestHalfVarlen(t *testing.T) { halfAttention(t, "cpu", pathVarlen, 3e-2) }
