//go:build torch

package cgo

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

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
		for _, o := range []ForwardOptions{{}, {Checkpoint: true}} {
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

// qwen05 is the shape of Qwen2.5-0.5B.
func qwen05() ModelConfig {
	c := ModelConfig{
		VocabSize: 151936, HiddenSize: 896, IntermediateSize: 4864, NumLayers: 24, NumHeads: 14, NumKVHeads: 2, HeadDim: 64,
		RMSNormEps: 1e-6, TieWordEmbeddings: true, QKVBias: true,
	}
	for i := range 32 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(1e6, -float64(i)/32)))
	}
	return c
}

// BenchmarkPacked8k trains Qwen2.5-0.5B's shape on eight packed sequences of 1,024 tokens, every one predicted. MFU counts
// 6 floating-point operations a parameter and token, the tied head once, neither attention nor recomputation, against
// AGENTFLY_PEAK_TFLOPS (989, an H100's or H200's bf16).
func BenchmarkPacked8k(b *testing.B) {
	if CUDADevices() == 0 {
		b.Skip("libtorch sees no CUDA device; on a CPU a step of this takes minutes")
	}
	inBoth(b, qwen05(), "cuda", packed8k)
}

func packed8k(b *testing.B, m *Model) {
	peak := 989.0
	if p, err := strconv.ParseFloat(os.Getenv("AGENTFLY_PEAK_TFLOPS"), 64); err == nil {
		peak = p
	}
	c := m.Config()
	parameters := int64(0)
	for _, p := range m.Parameters() {
		parameters += p.Elements()
	}
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(b, err)
	defer o.Close()
	batch := &Batch{Temperature: 1}
	rng := rand.New(rand.NewPCG(1, 2))
	const sequences, length = 8, 1024
	for s := range sequences {
		batch.SegmentStart = append(batch.SegmentStart, int32(s*length))
		batch.SegmentLength = append(batch.SegmentLength, length)
		batch.SegmentParent = append(batch.SegmentParent, -1)
		for i := range length {
			batch.Tokens = append(batch.Tokens, rng.Int32N(int32(c.VocabSize)))
			batch.Positions = append(batch.Positions, int32(i))
			batch.RowToken = append(batch.RowToken, int32(s*length+i))
			batch.RowTarget = append(batch.RowTarget, rng.Int32N(int32(c.VocabSize)))
		}
	}
	weight := make([]float32, len(batch.RowToken))
	for i := range weight {
		weight[i] = -1 / float32(len(weight))
	}
	w, err := FromFloats(m, weight)
	require.NoError(b, err)
	defer CloseTensor(w)
	step := func() {
		out, err := m.Forward(batch, ForwardOptions{Grad: true, Checkpoint: true})
		require.NoError(b, err)
		defer out.Close()
		loss, err := MaskedSum(out.Logprobs, w)
		require.NoError(b, err)
		defer CloseTensor(loss)
		require.NoError(b, Backward(loss))
		_, err = o.Step(1e-6, 1) // reads the norm: waits for the device
		require.NoError(b, err)
	}
	step()
	start := time.Now()
	for b.Loop() {
		step()
	}
	_, err = m.Parameter("model.norm.weight") // waits for the last step
	require.NoError(b, err)
	seconds := time.Since(start).Seconds() / float64(b.N)
	b.ReportMetric(sequences*length/seconds, "tokens/s")
	b.ReportMetric(100*6*float64(parameters)*sequences*length/seconds/(peak*1e12), "MFU-%")
}
