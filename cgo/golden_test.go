//go:build torch

package cgo

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// golden is what scripts/goldens/models.py writes.
type golden struct {
	Name        string
	Config      ModelConfig
	IDs         []int32
	Temperature float64
	Parameters  map[string]array
	Logprobs    string // base64 of float32 [len(IDs) - 1]
	Entropy     string
	Loss        float64
	Gradients   map[string]array
	Norms       []float64 // before clipping, ten steps
	After       map[string]array
}

type array struct {
	Shape []int64
	Data  string
}

func decode(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	return raw
}

func floats(t testing.TB, text string) []float32 {
	t.Helper()
	raw := decode(t, text)
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func goldenNames(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json.gz")
	require.NoError(t, err)
	require.Len(t, files, 10)
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json.gz"))
	}
	return names
}

func loadGolden(t testing.TB, name string) (g golden) {
	t.Helper()
	readGolden(t, name, &g)
	return g
}

func readGolden(t testing.TB, name string, to any) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(to))
}

// layersIf is ForwardOptions.Checkpoint of all layers, or of none.
func layersIf(checkpoint bool) int {
	if checkpoint {
		return AllLayers
	}
	return 0
}

// testDevice is where the tests of the trainer compute: scripts/gpu_check.sh sets cuda.
func testDevice() string {
	if d := os.Getenv("AGENTFLY_TEST_DEVICE"); d != "" {
		return d
	}
	return "cpu"
}

// model makes the golden's model with its parameters.
func (g golden) model(t testing.TB) *Model {
	t.Helper()
	m, err := NewModel(g.Config, testDevice())
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	require.Len(t, m.Parameters(), len(g.Parameters))
	for _, p := range m.Parameters() {
		want, ok := g.Parameters[p.Name]
		require.True(t, ok, p.Name)
		require.Equal(t, want.Shape, p.Shape, p.Name)
		require.NoError(t, m.SetParameter(p.Name, F32, decode(t, want.Data), p.Shape))
	}
	m.Changed()
	return m
}

// plain is a batch of one sequence whose every token but the first is predicted.
func plain(ids []int32, temperature float64) *Batch {
	b := &Batch{Tokens: ids, SegmentStart: []int32{0}, SegmentLength: []int32{int32(len(ids))}, SegmentParent: []int32{-1}, Temperature: temperature}
	for i := range ids {
		b.Positions = append(b.Positions, int32(i))
		if i > 0 {
			b.RowToken = append(b.RowToken, int32(i-1))
			b.RowTarget = append(b.RowTarget, ids[i])
		}
	}
	return b
}

// waveLoss is the goldens' loss: mean over rows of cos(i) logprob + 0.1 sin(i) entropy. It runs backward.
func waveLoss(t testing.TB, m *Model, b *Batch, o ForwardOptions) float64 {
	t.Helper()
	n := len(b.RowToken)
	cos, sin := make([]float32, n), make([]float32, n)
	for i := range n {
		cos[i] = float32(math.Cos(float64(i))) / float32(n)
		sin[i] = 0.1 * float32(math.Sin(float64(i))) / float32(n)
	}
	return weightedLoss(t, m, b, o, cos, sin)
}

// weightedLoss runs forward and backward of the sum of wl*logprob + we*entropy and returns it.
func weightedLoss(t testing.TB, m *Model, b *Batch, o ForwardOptions, wl, we []float32) float64 {
	t.Helper()
	o.Grad, o.Entropy = true, true
	out, err := m.Forward(b, o)
	require.NoError(t, err)
	defer out.Close()
	parts := make([]gotorch.Tensor, 0, 2)
	for i, w := range [][]float32{wl, we} {
		weight, err := FromFloats(m, w)
		require.NoError(t, err)
		defer CloseTensor(weight)
		part, err := MaskedSum([]gotorch.Tensor{out.Logprobs, out.Entropy}[i], weight)
		require.NoError(t, err)
		defer CloseTensor(part)
		parts = append(parts, part)
	}
	loss := gotorch.Add(parts[0], parts[1], 1)
	defer CloseTensor(loss)
	require.NoError(t, Backward(loss))
	v, err := Scalar(loss)
	require.NoError(t, err)
	return float64(v)
}

// relative is |a - b| / |b| in the L2 norm.
func relative(t testing.TB, a, b []float32) float64 {
	t.Helper()
	require.Len(t, a, len(b))
	var diff, norm float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		diff += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}

func worst(t testing.TB, a, b []float32) float64 {
	t.Helper()
	require.Len(t, a, len(b))
	var w float64
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= w) {
			w = d
		}
	}
	return w
}

// variants are the ways to compute the same thing.
var variants = []struct {
	name    string
	generic bool
	options ForwardOptions
}{
	{"kernels", false, ForwardOptions{}},
	{"checkpoint", false, ForwardOptions{Checkpoint: AllLayers}},
	{"generic", true, ForwardOptions{}},
}

func TestGoldenScores(t *testing.T) {
	for _, name := range goldenNames(t) {
		for _, v := range variants {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				g := loadGolden(t, name)
				m := g.model(t)
				require.NoError(t, useGeneric(m, v.generic))
				logprobs, entropy, err := m.Logprobs(plain(g.IDs, g.Temperature))
				require.NoError(t, err)
				a, b := worst(t, logprobs, floats(t, g.Logprobs)), worst(t, entropy, floats(t, g.Entropy))
				t.Logf("worst difference: logprobs %.1e, entropy %.1e", a, b)
				require.LessOrEqual(t, a, 2e-5)
				require.LessOrEqual(t, b, 2e-5)
			})
		}
	}
}

func TestGoldenGradients(t *testing.T) {
	for _, name := range goldenNames(t) {
		for _, v := range variants {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				g := loadGolden(t, name)
				m := g.model(t)
				require.NoError(t, useGeneric(m, v.generic))
				require.InDelta(t, g.Loss, waveLoss(t, m, plain(g.IDs, g.Temperature), v.options), 1e-5)
				var most float64
				for _, p := range m.Parameters() {
					got, err := m.Gradient(p.Name)
					require.NoError(t, err)
					r := relative(t, got, floats(t, g.Gradients[p.Name].Data))
					most = max(most, r)
					require.LessOrEqual(t, r, 1e-4, p.Name)
				}
				t.Logf("worst relative difference %.1e", most)
			})
		}
	}
}

func TestGoldenTenSteps(t *testing.T) {
	for _, name := range goldenNames(t) {
		for _, generic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/generic=%t", name, generic), func(t *testing.T) {
				g := loadGolden(t, name)
				m := g.model(t)
				require.NoError(t, useGeneric(m, generic))
				o, err := NewOptimizer(m, AdamWConfig{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}, nil)
				require.NoError(t, err)
				defer o.Close()
				require.Len(t, g.Norms, 10)
				for i, want := range g.Norms {
					waveLoss(t, m, plain(g.IDs, g.Temperature), ForwardOptions{})
					norm, err := o.Step(1e-3, 0.05)
					require.NoError(t, err)
					require.InEpsilon(t, want, norm, 1e-4, "step %d", i)
				}
				require.Equal(t, int64(10), o.StepCount())
				var most float64
				for _, p := range m.Parameters() {
					got, err := m.Parameter(p.Name)
					require.NoError(t, err)
					r := relative(t, got, floats(t, g.After[p.Name].Data))
					most = max(most, r)
					require.LessOrEqual(t, r, 1e-4, p.Name)
					require.Greater(t, relative(t, got, floats(t, g.Parameters[p.Name].Data)), 1e-3, "%s did not move", p.Name)
				}
				t.Logf("worst relative difference %.1e", most)
			})
		}
	}
}
