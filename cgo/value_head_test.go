//go:build torch

package cgo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// withValueHead adds a random value head.
func withValueHead(t testing.TB, m *Model) {
	t.Helper()
	require.NoError(t, m.AddValueHead())
	r := rand.New(rand.NewPCG(5, 6))
	w := make([]float32, m.Config().HiddenSize)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	require.NoError(t, m.SetParameter("value_head.weight", F32, bytesOf(w), []int64{1, int64(len(w))}))
	require.NoError(t, m.SetParameter("value_head.bias", F32, bytesOf([]float32{0.25}), []int64{1}))
	m.Changed()
}

// valueLoss runs forward and backward of the sum of wl*logprob + wv*value^2 and returns it.
func valueLoss(t testing.TB, m *Model, b *Batch, o ForwardOptions, wl, wv []float32) float64 {
	t.Helper()
	o.Grad, o.Values = true, true
	out, err := m.Forward(b, o)
	require.NoError(t, err)
	defer out.Close()
	ok := must(t)
	loss := gotorch.Add(ok(MaskedSum(out.Logprobs, ok(FromFloats(m, wl)))),
		ok(MaskedSum(gotorch.Mul(out.Values, out.Values), ok(FromFloats(m, wv)))), 1)
	require.NoError(t, Backward(loss))
	v, err := Scalar(loss)
	require.NoError(t, err)
	return float64(v)
}

func TestValueHeadIsTrained(t *testing.T) {
	m, b := tiny(t)
	base := m.Parameters()
	before, entropy, err := m.Logprobs(b)
	require.NoError(t, err)
	old, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer old.Close()
	_, err = m.Infer(b, ForwardOptions{Values: true})
	require.EqualError(t, err, "cgo: forward: values need a value head, which the model has not; add one first")

	require.NoError(t, m.AddValueHead())
	require.EqualError(t, m.AddValueHead(), "cgo: value head: the model has a value head already")
	require.Equal(t, base, m.Parameters(), "files hold the base model alone")
	d := int64(m.Config().HiddenSize)
	require.Equal(t, append(base, ParameterInfo{"value_head.weight", []int64{1, d}}, ParameterInfo{"value_head.bias", []int64{1}}), m.Trained())
	s, err := m.Infer(b, ForwardOptions{Entropy: true, Values: true})
	require.NoError(t, err)
	require.Equal(t, Inference{before, entropy, make([]float32, len(b.RowToken))}, s, "the model is as before, values begin at 0")

	weight := make([]float32, len(b.RowToken))
	for i := range weight {
		weight[i] = 1
	}
	_, err = old.Step(1e-3, 0)
	require.ErrorContains(t, err, "the optimizer was made before a value head or an adapter was added")
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	// d sum(v^2) = 2 v = 0 at first: begin away from 0.
	require.NoError(t, m.SetParameter("value_head.bias", F32, bytesOf([]float32{0.5}), []int64{1}))
	m.Changed()
	valueLoss(t, m, b, ForwardOptions{}, make([]float32, len(weight)), weight)
	g, err := m.Gradient("value_head.bias")
	require.NoError(t, err)
	require.Equal(t, []float32{float32(len(weight))}, g, "2 * 0.5 from every row")
	norm, err := o.Step(1e-3, 0)
	require.NoError(t, err)
	require.Greater(t, norm, float64(len(weight)), "the norm covers the value head")
	v, err := m.Parameter("value_head.bias")
	require.NoError(t, err)
	require.InDelta(t, 0.499, v[0], 1e-6, "Adam's first step is the learning rate")
	avg, err := o.State("value_head.bias", ExpAvg)
	require.NoError(t, err)
	require.InDelta(t, 0.1*float64(len(weight)), avg[0], 1e-4)
}

// The ways to compute agree, and the gradient is the slope of the loss.
func TestValueHeadGradient(t *testing.T) {
	for _, name := range []string{"smollm", "qwen3"} {
		g := loadGolden(t, name)
		b := plain(g.IDs, g.Temperature)
		wl, wv := make([]float32, len(b.RowToken)), make([]float32, len(b.RowToken))
		for i := range wl {
			wl[i], wv[i] = float32(math.Cos(float64(i)))/100, float32(math.Sin(float64(i)))/100
			if i%5 == 0 {
				wv[i] = 0
			}
		}
		var values []float32
		var grads map[string][]float32
		for _, v := range variants {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				m := g.model(t)
				withValueHead(t, m)
				require.NoError(t, useGeneric(m, v.generic))
				s, err := m.Infer(b, ForwardOptions{Values: true})
				require.NoError(t, err)
				loss := valueLoss(t, m, b, v.options, wl, wv)
				got := gradients(t, m)
				if values == nil {
					values, grads = s.Values, got
					slopes(t, m, b, wl, wv, got)
				}
				require.LessOrEqual(t, relative(t, s.Values, values), 1e-5)
				for n := range grads {
					require.LessOrEqual(t, relative(t, got[n], grads[n]), 1e-4, n)
				}
				if v.name == "checkpoint" {
					require.Equal(t, grads, got)
				}
				t.Logf("loss %.4f", loss)
			})
		}
	}
}

// slopes compares the gradient with central differences of the loss along random directions, one per parameter.
func slopes(t *testing.T, m *Model, b *Batch, wl, wv []float32, gradient map[string][]float32) {
	t.Helper()
	loss := func() float64 {
		s, err := m.Infer(b, ForwardOptions{Values: true})
		require.NoError(t, err)
		sum := 0.0
		for i := range wl {
			sum += float64(wl[i])*float64(s.Logprobs[i]) + float64(wv[i])*float64(s.Values[i])*float64(s.Values[i])
		}
		return sum
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range m.Trained() {
		old, err := m.Parameter(p.Name)
		require.NoError(t, err)
		direction := make([]float64, len(old))
		length, want := 0.0, 0.0
		for i := range direction { // half gradient, half noise: the slope is far from 0
			direction[i] = r.NormFloat64()
			length += direction[i] * direction[i]
		}
		norm := 0.0
		for _, g := range gradient[p.Name] {
			norm += float64(g) * float64(g)
		}
		for i := range direction {
			direction[i] = direction[i]/math.Sqrt(length) + float64(gradient[p.Name][i])/math.Sqrt(norm)
			want += direction[i] * float64(gradient[p.Name][i])
		}
		const h = 4e-3
		at := func(step float64) float64 {
			moved := make([]float32, len(old))
			for i := range moved {
				moved[i] = old[i] + float32(step*direction[i])
			}
			require.NoError(t, m.SetParameter(p.Name, F32, bytesOf(moved), p.Shape))
			m.Changed()
			return loss()
		}
		got := (at(h) - at(-h)) / (2 * h)
		at(0)
		require.InEpsilon(t, want, got, 0.02, p.Name)
	}
}

// A row without weight touches neither the trunk's gradient nor the head's.
func TestValueHeadMasked(t *testing.T) {
	for _, generic := range []bool{false, true} {
		m, b := tiny(t)
		withValueHead(t, m)
		require.NoError(t, useGeneric(m, generic))
		o, err := NewOptimizer(m, DefaultAdamW(), nil)
		require.NoError(t, err)
		n := len(b.RowToken)
		zero, some := make([]float32, n), make([]float32, n)
		valueLoss(t, m, b, ForwardOptions{}, zero, zero)
		for name, g := range gradients(t, m) {
			require.Equal(t, make([]float32, len(g)), g, name)
		}
		some[2] = 1
		valueLoss(t, m, b, ForwardOptions{}, zero, some)
		all := gradients(t, m)
		require.NoError(t, o.ZeroGrad())
		one := *b
		one.RowToken, one.RowTarget = b.RowToken[2:3], b.RowTarget[2:3]
		valueLoss(t, m, &one, ForwardOptions{}, []float32{0}, []float32{1})
		for name, g := range gradients(t, m) {
			require.LessOrEqual(t, relative(t, all[name], g), 1e-5, name)
		}
		require.NoError(t, o.Close())
	}
}
