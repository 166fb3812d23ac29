//go:build torch

package cgo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// trainedState is what training changes: weights and moments.
func trainedState(t *testing.T, m *Model, o *Optimizer) map[string][][]float32 {
	t.Helper()
	all := map[string][][]float32{}
	for _, p := range m.Trained() {
		w, err := m.Parameter(p.Name)
		require.NoError(t, err)
		avg, err := o.State(p.Name, ExpAvg)
		require.NoError(t, err)
		sq, err := o.State(p.Name, ExpAvgSq)
		require.NoError(t, err)
		all[p.Name] = [][]float32{w, avg, sq}
	}
	return all
}

// trains six steps of a golden's model, with what between does around them, and returns where that leads.
func trains(t *testing.T, c AdamWConfig, generic, half, adapter bool, between func(when string, o *Optimizer)) map[string][][]float32 {
	t.Helper()
	g := loadGolden(t, "smollm")
	m := g.model(t)
	if adapter {
		require.NoError(t, m.AddAdapter(AdapterConfig{Rank: 4, Alpha: 8, Seed: 3}))
	}
	if half {
		require.NoError(t, m.SetDType(BF16))
	}
	require.NoError(t, useGeneric(m, generic))
	o, err := NewOptimizer(m, c, nil)
	require.NoError(t, err)
	defer o.Close()
	for range 6 {
		between("before", o)
		waveLoss(t, m, plain(g.IDs, g.Temperature), ForwardOptions{})
		waveLoss(t, m, plain(g.IDs[:7], g.Temperature), ForwardOptions{})
		between("with a gradient", o)
		_, err := o.Step(1e-2, 0.05)
		require.NoError(t, err)
		between("after", o)
	}
	return trainedState(t, m, o)
}

var trainedAdamW = AdamWConfig{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}

// Memory that is released between all steps, with a gradient or without, changes no bit of a run.
func TestReleaseKeepsTheBits(t *testing.T) {
	for _, v := range []struct{ generic, half, adapter bool }{{}, {half: true}, {adapter: true}, {generic: true}, {generic: true, half: true, adapter: true}} {
		t.Run(fmt.Sprintf("%+v", v), func(t *testing.T) {
			want := trains(t, trainedAdamW, v.generic, v.half, v.adapter, func(string, *Optimizer) {})
			got := trains(t, trainedAdamW, v.generic, v.half, v.adapter, func(_ string, o *Optimizer) {
				require.NoError(t, o.Release())
				require.NoError(t, o.Release(), "twice is once")
				require.NoError(t, o.Restore())
				require.NoError(t, o.Restore())
			})
			require.Equal(t, want, got)
		})
	}
}

// A released optimizer refuses what it cannot do, and gives its state all the same.
func TestReleasedOptimizer(t *testing.T) {
	m, b := tiny(t)
	o, err := NewOptimizer(m, trainedAdamW, nil)
	require.NoError(t, err)
	defer o.Close()
	waveLoss(t, m, b, ForwardOptions{})
	_, err = o.Step(1e-2, 0)
	require.NoError(t, err)
	before := trainedState(t, m, o)
	scores, _, err := m.Logprobs(b)
	require.NoError(t, err)
	waveLoss(t, m, b, ForwardOptions{})
	first := gradients(t, m)
	require.NoError(t, o.Release())
	require.Equal(t, before, trainedState(t, m, o))
	name := m.Trained()[1].Name
	_, err = m.Gradient(name)
	require.ErrorContains(t, err, "the gradient lies in host memory")
	_, err = o.Step(1e-2, 0)
	require.ErrorContains(t, err, "the optimizer's memory was released; restore it first")
	require.ErrorIs(t, err, ErrInput)
	again, _, err := m.Logprobs(b)
	require.NoError(t, err)
	require.Equal(t, scores, again, "forwards go on")
	require.NoError(t, o.SetState(name, ExpAvg, make([]float32, len(before[name][1]))))
	waveLoss(t, m, b, ForwardOptions{}) // a backward meanwhile
	require.NoError(t, o.Restore())
	avg, err := o.State(name, ExpAvg)
	require.NoError(t, err)
	require.Zero(t, avg[0], "what was set while it was released")
	for name, g := range gradients(t, m) {
		for i := range g {
			require.InDelta(t, 2*first[name][i], g[i], 1e-6, "the gradients of both")
		}
	}
	require.NoError(t, o.Release())
	waveLoss(t, m, b, ForwardOptions{})
	require.NoError(t, o.Release(), "with a gradient here and one in host memory")
	require.NoError(t, o.Restore())
	for name, g := range gradients(t, m) {
		for i := range g {
			require.InDelta(t, 3*first[name][i], g[i], 1e-6, "the gradients of all three")
		}
	}
	require.NoError(t, o.Release())
	require.NoError(t, o.ZeroGrad())
	require.NoError(t, o.Restore())
	for _, g := range gradients(t, m) {
		require.NotContains(t, g, float32(math.NaN()))
		require.Zero(t, g[0])
	}
	require.NoError(t, m.Release())
}

// Moments in host memory come in chunks and lead to the same bits. (ATen's fused AdamW computes the end of a buffer that fills no
// vector of a CPU in another way, so its chunks are whole vectors here; our kernel takes any.)
func TestOffloadKeepsTheBits(t *testing.T) {
	for _, generic := range []bool{false, true} {
		want := trains(t, trainedAdamW, generic, false, false, func(string, *Optimizer) {})
		chunks := []int64{100, 1001, OffloadChunk}
		if generic {
			chunks = []int64{1024, OffloadChunk}
		}
		for _, chunk := range chunks {
			c := trainedAdamW
			c.Offload = chunk
			require.Equal(t, want, trains(t, c, generic, false, false, func(string, *Optimizer) {}), "chunk %d, generic %t", chunk, generic)
			require.Equal(t, want, trains(t, c, generic, false, false, func(when string, o *Optimizer) {
				if when == "after" {
					require.NoError(t, o.Release())
					require.NoError(t, o.Restore())
				}
			}), "chunk %d, generic %t, released", chunk, generic)
		}
	}
	m, _ := tiny(t)
	_, err := NewOptimizer(m, AdamWConfig{Beta1: 0.9, Beta2: 0.9, Eps: 1, Offload: -1}, nil)
	require.ErrorContains(t, err, "offload must be at least 0")
}

// ATen's fused AdamW, which CUDA takes, against our kernel: the same gradients, with the norm clipped; a gradient that is not
// finite is dropped, and one whose squares leave float32 has its norm all the same.
func TestFusedAdamW(t *testing.T) {
	g := loadGolden(t, "qwen3")
	b := plain(g.IDs, g.Temperature)
	var models [2]*Model
	var optimizers [2]*Optimizer
	for i := range models {
		var err error
		models[i] = g.model(t)
		optimizers[i], err = NewOptimizer(models[i], trainedAdamW, nil)
		require.NoError(t, err)
		defer optimizers[i].Close()
	}
	n := len(b.RowToken)
	both := func(scale float32, lr float64) (norms [2]float64, errs [2]error) {
		weights := make([]float32, n)
		for i := range weights {
			weights[i] = scale * float32(math.Cos(float64(i)))
		}
		for i, m := range models {
			require.NoError(t, useGeneric(m, false))
			weightedLoss(t, m, b, ForwardOptions{}, weights, make([]float32, n))
			require.NoError(t, useGeneric(m, i == 1))
			norms[i], errs[i] = optimizers[i].Step(lr, 0.05)
		}
		return norms, errs
	}
	compare := func(tolerance float64) {
		t.Helper()
		most := 0.0
		for _, p := range models[0].Trained() {
			want, err := models[0].Parameter(p.Name)
			require.NoError(t, err)
			got, err := models[1].Parameter(p.Name)
			require.NoError(t, err)
			most = max(most, relative(t, got, want))
		}
		t.Logf("worst relative difference %.1e", most)
		require.LessOrEqual(t, most, tolerance)
	}
	start, err := models[0].Parameter(models[0].Trained()[0].Name)
	require.NoError(t, err)
	for range 10 {
		norms, errs := both(1, 1e-3)
		require.Equal(t, [2]error{}, errs)
		require.InEpsilon(t, norms[0], norms[1], 1e-5)
		require.Greater(t, norms[0], 0.05, "it is clipped")
	}
	compare(2e-6)
	moved, err := models[1].Parameter(models[0].Trained()[0].Name)
	require.NoError(t, err)
	require.Greater(t, relative(t, moved, start), 1e-3, "it moved")

	small, errs := both(1, 0)
	require.Equal(t, [2]error{}, errs)
	large, errs := both(1e24, 0) // too large for our kernel, which sums in float32
	require.NoError(t, errs[1])
	require.InEpsilon(t, 1e24*small[1], large[1], 1e-4)

	before := trainedState(t, models[1], optimizers[1])
	_, errs = both(float32(math.NaN()), 1e-3)
	for i := range errs {
		require.ErrorIs(t, errs[i], ErrNonFinite)
	}
	require.Equal(t, before, trainedState(t, models[1], optimizers[1]), "nothing else changes")
	for _, g := range gradients(t, models[1]) {
		require.Zero(t, g[0])
	}
	require.Equal(t, int64(12), optimizers[1].StepCount())
}

// What a release frees of a process's memory on a CPU: a gradient of zeros, the rounded copy and intermediates.
func TestReleaseFreesMemory(t *testing.T) {
	if os.Getenv("NATIVE") == "asan" {
		t.Skip("asan holds freed memory back on purpose")
	}
	c := ModelConfig{
		VocabSize: 8000, HiddenSize: 768, IntermediateSize: 2048, NumLayers: 4, NumHeads: 8, NumKVHeads: 8, HeadDim: 8, RMSNormEps: 1e-5,
		InvFreq: []float32{1, 0.5, 0.25, 0.125},
	}
	m, err := NewModel(c, "cpu")
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Init(1, 0.02))
	require.NoError(t, m.SetDType(BF16))
	o, err := NewOptimizer(m, trainedAdamW, nil)
	require.NoError(t, err)
	defer o.Close()
	var parameters int64
	for _, p := range m.Parameters() {
		parameters += p.Elements()
	}
	b := plain(randomIDs(rand.New(rand.NewPCG(1, 1)), 200, c.VocabSize), 1)
	waveLoss(t, m, b, ForwardOptions{})
	_, err = o.Step(1e-3, 1)
	require.NoError(t, err)
	full := residentMiB(t)
	require.NoError(t, o.Release())
	released := residentMiB(t)
	want := int(6*parameters) >> 20
	t.Logf("%d million parameters: %d MiB, released %d MiB; gradient and rounded copy are %d MiB", parameters/1e6, full, released, want)
	require.Greater(t, full-released, want*9/10)
	require.NoError(t, o.Restore())
	waveLoss(t, m, b, ForwardOptions{})
	_, err = o.Step(1e-3, 1)
	require.NoError(t, err)
	require.Greater(t, residentMiB(t)-released, want*9/10, "what a step needs comes back with it")
}
