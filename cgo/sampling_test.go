//go:build torch

package cgo

import (
	"math"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// truncated is the plain twin of the sampler: probabilities [V] after temperature, min-p, top-k and top-p.
func truncated(logits []float64, o Output) []float64 {
	p := make([]float64, len(logits))
	top, total := math.Inf(-1), 0.0
	for _, z := range logits {
		top = max(top, z)
	}
	for i, z := range logits {
		p[i] = math.Exp((z - top) / o.Temperature)
		if p[i] < o.MinP {
			p[i] = 0
		}
	}
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return p[order[a]] > p[order[b]] })
	for rank, i := range order {
		if o.TopK > 0 && rank >= o.TopK {
			p[i] = 0
		}
		total += p[i]
	}
	mass := 0.0
	for _, i := range order {
		if mass >= o.TopP*total {
			p[i] = 0
		}
		mass += p[i]
	}
	total = 0
	for _, v := range p {
		total += v
	}
	for i := range p {
		p[i] /= total
	}
	return p
}

// distribution returns the trainer's logprobs of every token after ids.
func distribution(t testing.TB, m *Model, ids []int32) []float64 {
	t.Helper()
	b := plain(ids, 1)
	b.RowToken, b.RowTarget = nil, nil
	for v := range m.Config().VocabSize {
		b.RowToken = append(b.RowToken, int32(len(ids)-1))
		b.RowTarget = append(b.RowTarget, int32(v))
	}
	lp, _, err := m.Logprobs(b)
	require.NoError(t, err)
	out := make([]float64, len(lp))
	for i, v := range lp {
		out[i] = float64(v)
	}
	return out
}

// Sampled frequencies follow the twin's distribution, every logprob is the twin's, nothing outside it is ever sampled.
func TestSamplingDistribution(t *testing.T) {
	c := tinyConfig(0)
	m := tinyModel(t, c, 4)
	k := newCache(t, m, 2, blockSize)
	ids := []int32{3, 1, 4, 1, 5}
	logits := distribution(t, m, ids)
	const draws = 20000
	for name, o := range map[string]Output{
		"plain":       {Temperature: 1, TopP: 1},
		"cold":        {Temperature: 0.5, TopP: 1},
		"hot":         {Temperature: 3, TopP: 1},
		"top_k":       {Temperature: 2, TopP: 1, TopK: 7},
		"top_k 1":     {Temperature: 2, TopP: 1, TopK: 1},
		"top_k large": {Temperature: 2, TopP: 1, TopK: 5000},
		"top_p":       {Temperature: 2, TopP: 0.8},
		"top_p tiny":  {Temperature: 2, TopP: 1e-9},
		"top_p flat":  {Temperature: 1000, TopP: 0.5},
		"min_p":       {Temperature: 2, TopP: 1, MinP: 0.1},
		"all":         {Temperature: 1.5, TopP: 0.9, TopK: 20, MinP: 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			want := truncated(logits, o)
			s := &Step{MaxBlocks: 1}
			o.Row = add(s, ids, 0, []int32{0})
			for i := range draws {
				o.Seed, o.Counter = uint64(i%100), uint64(i/100)
				s.Outputs = append(s.Outputs, o)
			}
			require.NoError(t, k.Step(s))
			count := make([]int, len(want))
			for i, id := range s.Sampled {
				count[id]++
				require.Positive(t, want[id], "token %d is cut off", id)
				require.InDelta(t, math.Log(want[id]), s.Logprobs[i], 5e-5)
			}
			square, freedom := 0.0, -1.0 // chi square over the tokens that are expected often enough
			rest, restCount := 0.0, 0
			for i, p := range want {
				if p*draws < 5 {
					rest, restCount = rest+p*draws, restCount+count[i]
					continue
				}
				d := float64(count[i]) - p*draws
				square += d * d / (p * draws)
				freedom++
			}
			if rest > 5 {
				d := float64(restCount) - rest
				square += d * d / rest
				freedom++
			}
			t.Logf("chi square %.1f with %.0f degrees of freedom", square, freedom)
			require.LessOrEqual(t, square, freedom+4*math.Sqrt(2*freedom)+1e-9)
		})
	}
}

func TestSamplingGreedyAndExtremes(t *testing.T) {
	c := tinyConfig(3)
	m := tinyModel(t, c, 4)
	k := newCache(t, m, 2, blockSize)
	ids := []int32{2, 7, 1}
	logits := distribution(t, m, ids)
	best := 0
	for i, z := range logits {
		if z > logits[best] {
			best = i
		}
	}
	s := &Step{MaxBlocks: 1}
	row := add(s, ids, 0, []int32{0})
	s.Outputs = []Output{
		greedy(row),
		{Row: row, Temperature: 1e-300, TopP: 1, Seed: 1},
		{Row: row, Temperature: 1e-6, TopP: 0.5, TopK: 3, MinP: 0.5, Seed: 2},
		{Row: row, Temperature: 1e300, TopP: 1, Seed: 3},
		{Row: row, Temperature: 1, TopP: 1, Seed: math.MaxUint64, Counter: math.MaxUint64},
	}
	require.NoError(t, k.Step(s))
	for i := range 3 {
		require.Equal(t, int32(best), s.Sampled[i])
	}
	require.InDelta(t, logits[best], s.Logprobs[0], 2e-5) // of temperature 1
	require.Zero(t, s.Logprobs[1])
	require.Zero(t, s.Logprobs[2])
	require.InDelta(t, -math.Log(float64(c.VocabSize)), s.Logprobs[3], 1e-5)
	require.InDelta(t, logits[s.Sampled[4]], s.Logprobs[4], 2e-5)
}
