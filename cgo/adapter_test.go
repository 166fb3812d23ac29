//go:build torch

package cgo

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// adapterGolden is what scripts/goldens/adapters.py writes besides a golden's fields.
type adapterGolden struct {
	golden
	Rank          int
	Alpha         float64
	Targets       []string
	Adapter       map[string]array // and the value head
	Values        string
	BaseLogprobs  string           `json:"base_logprobs"`
	BaseEntropy   string           `json:"base_entropy"`
	MergedWeights map[string]array `json:"merged"`
}

func adapterGoldens(t testing.TB) []adapterGolden {
	t.Helper()
	files, err := filepath.Glob("testdata/adapters/*.json.gz")
	require.NoError(t, err)
	require.Len(t, files, 3)
	var all []adapterGolden
	for _, f := range files {
		var g adapterGolden
		readGolden(t, filepath.Join("adapters", strings.TrimSuffix(filepath.Base(f), ".json.gz")), &g)
		all = append(all, g)
	}
	return all
}

// model makes the golden's model with adapter and value head.
func (g adapterGolden) model(t testing.TB) *Model {
	t.Helper()
	m := g.golden.model(t)
	require.NoError(t, m.AddAdapter(AdapterConfig{Rank: g.Rank, Alpha: g.Alpha, Targets: g.Targets, Seed: 1}))
	require.NoError(t, m.AddValueHead())
	require.Len(t, m.Trained(), len(g.Adapter))
	for _, p := range m.Trained() {
		require.NoError(t, m.SetParameter(p.Name, F32, decode(t, g.Adapter[p.Name].Data), p.Shape), p.Name)
	}
	m.Changed()
	return m
}

// goldenLoss is that of adapters.py: mean of cos(i) logprob + 0.1 sin(i) entropy + 0.05 cos(2i) value^2. It runs backward.
func (g adapterGolden) goldenLoss(t testing.TB, m *Model, o ForwardOptions) float64 {
	t.Helper()
	o.Grad, o.Entropy, o.Values = true, true, true
	b := plain(g.IDs, g.Temperature)
	out, err := m.Forward(b, o)
	require.NoError(t, err)
	defer out.Close()
	n := len(b.RowToken)
	var weight [3][]float32
	for i := range n {
		x := float64(i)
		for k, w := range []float64{math.Cos(x), 0.1 * math.Sin(x), 0.05 * math.Cos(2*x)} {
			weight[k] = append(weight[k], float32(w)/float32(n))
		}
	}
	ok := must(t)
	var loss gotorch.Tensor
	for k, x := range []gotorch.Tensor{out.Logprobs, out.Entropy, gotorch.Mul(out.Values, out.Values)} {
		part := ok(MaskedSum(x, ok(FromFloats(m, weight[k]))))
		if k > 0 {
			part = gotorch.Add(loss, part, 1)
		}
		loss = part
	}
	require.NoError(t, Backward(loss))
	v, err := Scalar(loss)
	require.NoError(t, err)
	return float64(v)
}

func TestAdapterGoldenScores(t *testing.T) {
	for _, g := range adapterGoldens(t) {
		for _, v := range variants {
			t.Run(g.Name+"/"+v.name, func(t *testing.T) {
				m := g.model(t)
				require.NoError(t, useGeneric(m, v.generic))
				b := plain(g.IDs, g.Temperature)
				s, err := m.Infer(b, ForwardOptions{Entropy: true, Values: true})
				require.NoError(t, err)
				require.LessOrEqual(t, worst(t, s.Logprobs, floats(t, g.Logprobs)), 2e-5)
				require.LessOrEqual(t, worst(t, s.Entropy, floats(t, g.Entropy)), 2e-5)
				require.LessOrEqual(t, relative(t, s.Values, floats(t, g.Values)), 1e-5)
				m.SetAdapter(false)
				logprobs, entropy, err := m.Logprobs(b)
				require.NoError(t, err)
				require.LessOrEqual(t, worst(t, logprobs, floats(t, g.BaseLogprobs)), 2e-5)
				require.LessOrEqual(t, worst(t, entropy, floats(t, g.BaseEntropy)), 2e-5)
				require.Greater(t, worst(t, logprobs, s.Logprobs), 0.1, "the adapter does something")
				m.SetAdapter(true)
				again, _, err := m.Logprobs(b)
				require.NoError(t, err)
				require.Equal(t, s.Logprobs, again)
			})
		}
	}
}

func TestAdapterGoldenGradients(t *testing.T) {
	for _, g := range adapterGoldens(t) {
		for _, v := range variants {
			t.Run(g.Name+"/"+v.name, func(t *testing.T) {
				m := g.model(t)
				require.NoError(t, useGeneric(m, v.generic))
				require.InDelta(t, g.Loss, g.goldenLoss(t, m, v.options), 1e-5)
				var most float64
				for name, got := range gradients(t, m) {
					r := relative(t, got, floats(t, g.Gradients[name].Data))
					most = max(most, r)
					require.LessOrEqual(t, r, 1e-4, name)
				}
				t.Logf("worst relative difference %.1e", most)
				frozen, err := m.Gradient("model.embed_tokens.weight")
				require.NoError(t, err)
				require.Equal(t, make([]float32, len(frozen)), frozen)
			})
		}
	}
}

func TestAdapterGoldenTenSteps(t *testing.T) {
	for _, g := range adapterGoldens(t) {
		for _, generic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/generic=%t", g.Name, generic), func(t *testing.T) {
				m := g.model(t)
				require.NoError(t, useGeneric(m, generic))
				o, err := NewOptimizer(m, AdamWConfig{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}, nil)
				require.NoError(t, err)
				defer o.Close()
				for i, want := range g.Norms {
					g.goldenLoss(t, m, ForwardOptions{})
					norm, err := o.Step(1e-3, 0.05)
					require.NoError(t, err)
					require.InEpsilon(t, want, norm, 1e-4, "step %d", i)
				}
				for _, p := range m.Trained() {
					got, err := m.Parameter(p.Name)
					require.NoError(t, err)
					require.LessOrEqual(t, relative(t, got, floats(t, g.After[p.Name].Data)), 1e-4, p.Name)
					require.Greater(t, relative(t, got, floats(t, g.Adapter[p.Name].Data)), 1e-3, "%s did not move", p.Name)
				}
				for _, p := range m.Parameters() { // the base is frozen, the merged model is PEFT's
					base, err := m.Parameter(p.Name)
					require.NoError(t, err)
					require.Equal(t, floats(t, g.Parameters[p.Name].Data), base, p.Name)
					merged, err := m.Merged(p.Name)
					require.NoError(t, err)
					require.LessOrEqual(t, relative(t, merged, floats(t, g.MergedWeights[p.Name].Data)), 1e-4, p.Name)
				}
				_, err = o.State("model.norm.weight", ExpAvg)
				require.EqualError(t, err, "cgo: state: parameter model.norm.weight has no optimizer state, it is not trained")
			})
		}
	}
}

// The engine computes the model with its adapter, whatever the trainer's switch says, and follows its updates.
func TestCacheHasTheAdapter(t *testing.T) {
	for _, g := range adapterGoldens(t) {
		m := g.model(t)
		k := newCache(t, m, 32, blockSize)
		o, err := NewOptimizer(m, DefaultAdamW(), nil)
		require.NoError(t, err)
		blocks := make([]int32, 32)
		for i := range blocks {
			blocks[i] = int32(31 - i)
		}
		for step := range 3 {
			s := &Step{MaxBlocks: len(blocks)}
			add(s, g.IDs, 0, blocks)
			for i, id := range g.IDs[1:] {
				s.Outputs = append(s.Outputs, Output{Row: i, Given: true, Target: id})
			}
			m.SetAdapter(step != 1)
			require.NoError(t, k.Step(s))
			m.SetAdapter(true)
			d := worst(t, s.Logprobs, scores(t, m, g.IDs, 1))
			t.Logf("%s, step %d: engine and trainer differ by %.1e", g.Name, step, d)
			require.LessOrEqual(t, d, 1e-4)
			g.goldenLoss(t, m, ForwardOptions{})
			_, err = o.Step(1e-2, 0)
			require.NoError(t, err)
		}
		require.NoError(t, o.Close())
	}
}

func TestAdapterBeginsAsTheBase(t *testing.T) {
	m, b := tiny(t)
	before, entropy, err := m.Logprobs(b)
	require.NoError(t, err)
	require.NoError(t, m.AddAdapter(AdapterConfig{Rank: 4, Alpha: 8, Targets: []string{"up_proj", "q_proj"}, Seed: 7}))
	got, err := m.Infer(b, ForwardOptions{Entropy: true})
	require.NoError(t, err)
	require.Equal(t, Inference{Logprobs: before, Entropy: entropy}, got)
	c, ok := m.Adapter()
	require.True(t, ok)
	require.Equal(t, AdapterConfig{Rank: 4, Alpha: 8, Targets: []string{"q_proj", "up_proj"}, Seed: 7}, c)
	require.Equal(t, ParameterInfo{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", []int64{4, 36}}, m.Trained()[0])
	require.Equal(t, ParameterInfo{"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", []int64{36, 4}}, m.Trained()[1])
	require.Len(t, m.Trained(), 2*2*m.Config().NumLayers)
	a, err := m.Parameter(m.Trained()[0].Name)
	require.NoError(t, err)
	sum, square, most := 0.0, 0.0, 0.0
	for _, v := range a {
		sum, square, most = sum+float64(v), square+float64(v)*float64(v), max(most, math.Abs(float64(v)))
	}
	n := float64(len(a))
	require.LessOrEqual(t, most, 1.0/6, "uniform within 1/sqrt(36)")
	require.Greater(t, most, 0.9/6)
	require.InDelta(t, 0, sum/n, 0.03)
	require.InDelta(t, 1.0/108, square/n, 0.002) // bound^2 / 3

	other, _ := tiny(t)
	require.NoError(t, other.AddAdapter(AdapterConfig{Rank: 4, Alpha: 8, Targets: []string{"q_proj"}, Seed: 7}))
	same, err := other.Parameter(m.Trained()[0].Name)
	require.NoError(t, err)
	require.Equal(t, a, same, "values depend on seed and name alone")
}

func TestAdapterRefuses(t *testing.T) {
	m, b := tiny(t)
	for _, c := range []struct {
		AdapterConfig
		want string
	}{
		{AdapterConfig{Rank: 0, Alpha: 1}, "rank is 0, it must be 1 or more"},
		{AdapterConfig{Rank: 37, Alpha: 1}, "adapter rank is 37, allowed are 1 to 36"},
		{AdapterConfig{Rank: 1}, "alpha is 0, it must be above 0"},
		{AdapterConfig{Rank: 1, Alpha: math.Inf(1)}, "alpha is +Inf"},
		{AdapterConfig{Rank: 1, Alpha: 1, Targets: []string{"lm_head"}}, `target "lm_head" is unknown, allowed are q_proj, k_proj`},
	} {
		err := m.AddAdapter(c.AdapterConfig)
		require.ErrorContains(t, err, c.want)
		require.ErrorIs(t, err, ErrInput)
	}
	_, ok := m.Adapter()
	require.False(t, ok)
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	stale, err := m.Forward(b, ForwardOptions{Grad: true})
	require.NoError(t, err)
	require.NoError(t, m.AddAdapter(AdapterConfig{Rank: 1, Alpha: 1}))
	require.ErrorContains(t, Backward(gotorch.Sum(stale.Logprobs)), "parameters changed since the forward")
	require.ErrorContains(t, m.AddAdapter(AdapterConfig{Rank: 1, Alpha: 1}), "the model has an adapter already")
	_, err = o.Step(1, 1)
	require.ErrorContains(t, err, "the optimizer was made before")
}
