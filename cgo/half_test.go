//go:build torch

package cgo

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// halfGolden is an entry of what scripts/goldens/half.py writes.
type halfGolden struct {
	Logprobs string
	Error    float64 `json:"gradient_error"`
	Cosine   float64 `json:"gradient_cosine"`
}

func rms(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a)))
}

// cosine and relative distance of gradients, all parameters as one vector.
func compareGradients(a, b map[string][]float32) (cosine, distance float64) {
	var ab, aa, bb, dd float64
	for name, x := range a {
		for i := range x {
			u, v := float64(x[i]), float64(b[name][i])
			ab, aa, bb, dd = ab+u*v, aa+u*u, bb+v*v, dd+(u-v)*(u-v)
		}
	}
	return ab / math.Sqrt(aa*bb), math.Sqrt(dd / bb)
}

func halfGoldens(t *testing.T) map[string]halfGolden {
	t.Helper()
	text, err := os.ReadFile("testdata/half.json")
	require.NoError(t, err)
	var goldens map[string]halfGolden
	require.NoError(t, json.Unmarshal(text, &goldens))
	require.Len(t, goldens, 8)
	return goldens
}

// In bfloat16 we are about no farther from float32 than transformers is, in logprobs and in gradients.
func TestHalfPrecision(t *testing.T) {
	for _, name := range []string{"llama", "llama_biases", "smollm", "qwen2", "qwen3"} {
		t.Run(name, func(t *testing.T) { halfPrecision(t, name, pathDefault, 1.1) })
		t.Run(name+"/generic", func(t *testing.T) { halfPrecision(t, name, pathSegments, 1.1) })
	}
}

// bound is over transformers' own distance from float32.
func halfPrecision(t *testing.T, name string, by path, bound float64) {
	g, want := loadGolden(t, name), halfGoldens(t)[name]
	m := g.model(t)
	exactly := by
	if by == pathFlash { // which float32 has not
		exactly = pathVarlen
	}
	require.NoError(t, setPath(m, exactly))
	b := plain(g.IDs, g.Temperature)
	waveLoss(t, m, b, ForwardOptions{})
	exact := gradients(t, m)
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	require.NoError(t, o.ZeroGrad())

	require.NoError(t, m.SetDType(BF16))
	require.NoError(t, setPath(m, by))
	logprobs, entropy, err := m.Logprobs(b)
	require.NoError(t, err)
	ours, theirs := rms(logprobs, floats(t, g.Logprobs)), rms(floats(t, want.Logprobs), floats(t, g.Logprobs))
	apart := rms(logprobs, floats(t, want.Logprobs))
	t.Logf("logprobs: root mean square from float32 %.4f, transformers %.4f, apart %.4f", ours, theirs, apart)
	require.Greater(t, ours, 1e-4, "it computes in bfloat16")
	require.LessOrEqual(t, ours, bound*theirs)
	require.LessOrEqual(t, apart, 1.5*theirs)
	require.LessOrEqual(t, rms(entropy, floats(t, g.Entropy)), bound*theirs)

	for _, checkpoint := range []bool{false, true} {
		waveLoss(t, m, b, ForwardOptions{Checkpoint: layersIf(checkpoint)})
		cosine, distance := compareGradients(gradients(t, m), exact)
		t.Logf("gradient: cosine %.5f, distance %.4f; transformers %.5f, %.4f", cosine, distance, want.Cosine, want.Error)
		require.LessOrEqual(t, distance, bound*want.Error)
		require.GreaterOrEqual(t, cosine, want.Cosine-0.002)
		require.NoError(t, o.ZeroGrad())
	}
	require.NoError(t, m.SetDType(F32))
	require.NoError(t, setPath(m, exactly))
	back, _, err := m.Logprobs(b)
	require.NoError(t, err)
	require.LessOrEqual(t, worst(t, back, floats(t, g.Logprobs)), 2e-5)
}

// The same bits each time: tokens that stand at many positions add up in one order.
func TestHalfPrecisionRepeats(t *testing.T) {
	c := ModelConfig{
		VocabSize: 50, HiddenSize: 128, IntermediateSize: 256, NumLayers: 1, NumHeads: 4, NumKVHeads: 2, HeadDim: 32, RMSNormEps: 1e-5,
		InvFreq: slices.Repeat([]float32{1, 0.1}, 8),
	}
	m := tinyModel(t, c, 7)
	require.NoError(t, m.SetDType(BF16))
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	b := plain(randomIDs(rand.New(rand.NewPCG(2, 3)), 1500, c.VocabSize), 1)
	var first map[string][]float32
	for i := range 4 {
		waveLoss(t, m, b, ForwardOptions{})
		got := gradients(t, m)
		if i == 0 {
			first = got
		}
		require.Equal(t, first, got)
		require.NoError(t, o.ZeroGrad())
	}
}

// The parameters keep what an update adds, however small: the master weights are float32.
func TestHalfPrecisionMaster(t *testing.T) {
	m, b := tiny(t)
	require.NoError(t, m.SetDType(BF16))
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	before, err := m.Parameter("model.norm.weight")
	require.NoError(t, err)
	var scores [][]float32
	for range 200 { // steps of 1e-5 at values near 1, where bfloat16 has steps of 8e-3
		waveLoss(t, m, b, ForwardOptions{})
		_, err = o.Step(1e-5, 0)
		require.NoError(t, err)
		logprobs, _, err := m.Logprobs(b)
		require.NoError(t, err)
		scores = append(scores, logprobs)
	}
	after, err := m.Parameter("model.norm.weight")
	require.NoError(t, err)
	moved := worst(t, after, before)
	require.Greater(t, moved, 1e-3)
	require.Less(t, moved, 3e-3)
	require.NotEqual(t, scores[0], scores[199], "and forwards see it")
	_, err = m.Forward(b, ForwardOptions{Values: true})
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, m.SetDType(F16), "a model computes in F32 or BF16, not in dtype 1")
	stale, err := m.Forward(b, ForwardOptions{Grad: true})
	require.NoError(t, err)
	defer stale.Close()
	require.NoError(t, m.SetDType(F32))
	require.ErrorContains(t, Backward(gotorch.Sum(stale.Logprobs)), "parameters changed since the forward")
}

// Adapter and value head in bfloat16: no farther from float32 than PEFT is. These adapters are large (B and A ~ N(0, 0.3),
// share 1 to 2), which magnifies the rounding.
func TestHalfPrecisionAdapter(t *testing.T) {
	for _, g := range adapterGoldens(t) {
		t.Run(g.Name, func(t *testing.T) { halfAdapter(t, g, pathDefault) })
	}
}

func halfAdapter(t *testing.T, g adapterGolden, by path) {
	peft := halfGoldens(t)[g.Name]
	m := g.model(t)
	require.NoError(t, m.SetDType(BF16))
	require.NoError(t, setPath(m, by))
	b := plain(g.IDs, g.Temperature)
	s, err := m.Infer(b, ForwardOptions{Entropy: true, Values: true})
	require.NoError(t, err)
	exact := floats(t, g.Logprobs)
	ours, theirs := rms(s.Logprobs, exact), rms(floats(t, peft.Logprobs), exact)
	values := relative(t, s.Values, floats(t, g.Values))
	t.Logf("logprobs: root mean square from float32 %.4f, PEFT %.4f; values %.4f", ours, theirs, values)
	require.Greater(t, ours, 1e-4, "it computes in bfloat16")
	require.LessOrEqual(t, ours, 1.2*theirs)
	require.LessOrEqual(t, values, 0.15)
	m.SetAdapter(false)
	off, _, err := m.Logprobs(b)
	require.NoError(t, err)
	require.LessOrEqual(t, rms(off, floats(t, g.BaseLogprobs)), 0.15)
	m.SetAdapter(true)
	g.goldenLoss(t, m, ForwardOptions{})
	want := map[string][]float32{}
	for name, a := range g.Gradients {
		want[name] = floats(t, a.Data)
	}
	cosine, distance := compareGradients(gradients(t, m), want)
	t.Logf("gradient: cosine %.5f, distance %.4f; PEFT %.5f, %.4f", cosine, distance, peft.Cosine, peft.Error)
	require.LessOrEqual(t, distance, 1.2*peft.Error)
	require.GreaterOrEqual(t, cosine, peft.Cosine-0.002)
}

// AGENTFLY_CPU=avx2 leaves MKL's instructions for bfloat16 alone as well: a processor of that kind has none.
func TestHalfProductsOfAVX2(t *testing.T) {
	head := exec.Command(os.Args[0], "-test.run=^TestHalfHeadLogits$/^(kernels|generic)$", "-test.v")
	head.Env = append(os.Environ(), "AGENTFLY_CPU=avx2", "MKL_VERBOSE=1") // MKL then says which products it is asked for
	out, err := head.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS: TestHalfHeadLogits/kernels")
	require.NotContains(t, string(out), "GEMM_BF16")
}
