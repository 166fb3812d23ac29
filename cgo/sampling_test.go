//go:build torch

package cgo

import (
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// edited is the plain twin of the edits.
func edited(logits []float64, edits []Edit) []float64 {
	out := slices.Clone(logits)
	for _, e := range edits {
		if z := &out[e.Token]; *z > 0 {
			*z = *z/float64(e.Divide) - float64(e.Minus)
		} else {
			*z = *z*float64(e.Divide) - float64(e.Minus)
		}
	}
	return out
}

// truncated is the plain twin of the sampler: probabilities [V] after edits, temperature, min-p, top-k and top-p.
func truncated(logits []float64, o Output) []float64 {
	logits = edited(logits, o.Edits)
	if o.Allowed != nil {
		for i := range logits {
			if i/64 >= len(o.Allowed) || o.Allowed[i/64]>>(i%64)&1 == 0 {
				logits[i] = math.Inf(-1)
			}
		}
	}
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
		"plain":        {Temperature: 1, TopP: 1},
		"cold":         {Temperature: 0.5, TopP: 1},
		"hot":          {Temperature: 3, TopP: 1},
		"top_k":        {Temperature: 2, TopP: 1, TopK: 7},
		"top_k 1":      {Temperature: 2, TopP: 1, TopK: 1},
		"top_k large":  {Temperature: 2, TopP: 1, TopK: 5000},
		"top_p":        {Temperature: 2, TopP: 0.8},
		"top_p tiny":   {Temperature: 2, TopP: 1e-9},
		"top_p flat":   {Temperature: 1000, TopP: 0.5},
		"min_p":        {Temperature: 2, TopP: 1, MinP: 0.1},
		"all":          {Temperature: 1.5, TopP: 0.9, TopK: 20, MinP: 0.01},
		"minus":        {Temperature: 2, TopP: 1, Edits: []Edit{{3, 1, 2}, {1, 1, -1.5}, {5, 1, 0.25}}},
		"banned":       {Temperature: 2, TopP: 1, Edits: bans(0, 40)},
		"allowed":      {Temperature: 1, TopP: 1, Allowed: []uint64{0xF0F0_1234_5678_9ABC}},
		"allowed, all": {Temperature: 1.5, TopP: 0.9, TopK: 20, MinP: 0.01, Edits: append(bans(2, 9), Edit{1, 1, 1}), Allowed: []uint64{^uint64(0xFF00), 0x1}},
		"edits, all":   {Temperature: 1.5, TopP: 0.9, TopK: 20, MinP: 0.01, Edits: append(bans(2, 9), Edit{1, 1, 1}, Edit{11, 1, -2})},
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

// bans keep tokens from being sampled.
func bans(from, to int32) (out []Edit) {
	for id := from; id < to; id++ {
		out = append(out, Edit{id, 1, float32(math.Inf(1))})
	}
	return out
}

// TestEdits: greedy too, the logprob is that of the changed distribution; raw details tell of the one before.
func TestEdits(t *testing.T) {
	c := tinyConfig(0)
	m := tinyModel(t, c, 4)
	k := newCache(t, m, 2, blockSize)
	ids := []int32{3, 1, 4, 1, 5}
	logits := distribution(t, m, ids)
	best := 0
	for i, z := range logits {
		if z > logits[best] {
			best = i
		}
	}
	all := c.VocabSize
	s := &Step{MaxBlocks: 1}
	row := add(s, ids, 0, []int32{0})
	ban := Edit{int32(best), 1, float32(math.Inf(1))}
	detail := Detail{Wanted: true, Raw: true, Top: 1}
	s.Outputs = []Output{
		{Row: row, Temperature: 0, TopP: 1, Edits: []Edit{ban}, Detail: detail},
		{Row: row, Temperature: 0, TopP: 1, Edits: bans(0, int32(all-1)), Detail: Detail{Wanted: true, Top: 3}},
		{Row: row, Temperature: 0, TopP: 1, Edits: []Edit{{int32(best), 1e-6, 0}, {int32(best), 1e6, 0}}, Detail: detail}, // one after the other: as it was
		{Row: row, Temperature: 0, TopP: 1, Edits: []Edit{{int32(best), 1, -3}}},
	}
	require.NoError(t, k.Step(s))
	for i, o := range s.Outputs {
		o.Temperature = 1
		want := truncated(logits, o)
		require.InDelta(t, math.Log(want[s.Sampled[i]]), s.Logprobs[i], 1e-4, "output %d", i)
		for _, p := range want {
			require.LessOrEqual(t, p, want[s.Sampled[i]]+1e-6)
		}
	}
	require.NotEqual(t, int32(best), s.Sampled[0])
	require.InDelta(t, logits[s.Sampled[0]], s.Reported[0], 2e-5, "raw: before the edits")
	require.Equal(t, int32(best), s.TopIDs[0])
	require.Equal(t, int32(all-1), s.Sampled[1])
	require.Zero(t, s.Logprobs[1])
	require.Equal(t, []int32{int32(all - 1)}, s.TopIDs[3:4])
	require.True(t, math.IsInf(float64(s.TopLogprobs[4]), -1))
	require.Equal(t, int32(best), s.Sampled[3])

	// One token may be sampled: it has probability 1, beside an output that allows all.
	one := make([]uint64, (all+63)/64)
	one[(all-1)/64] = 1 << ((all - 1) % 64)
	s.Outputs = []Output{{Row: row, Temperature: 0, TopP: 1, Allowed: one, Detail: detail}, {Row: row, Temperature: 1, TopP: 1, Allowed: one}, {Row: row, Temperature: 0, TopP: 1}}
	require.NoError(t, k.Step(s))
	require.Equal(t, []int32{int32(all - 1), int32(all - 1), int32(best)}, s.Sampled)
	require.Equal(t, []float32{0, 0}, s.Logprobs[:2])
	require.InDelta(t, logits[all-1], s.Reported[0], 2e-5, "raw: of all tokens")

	for _, bad := range [][]Edit{{{-1, 1, 0}}, {{int32(all), 1, 0}}, {{0, 0, 0}}, {{0, float32(math.NaN()), 0}}, {{0, 1, float32(math.Inf(-1))}}, {{0, 1, float32(math.NaN())}}} {
		s.Outputs = []Output{{Row: row, Temperature: 1, TopP: 1, Edits: bad}}
		require.ErrorIs(t, k.Step(s), ErrInput)
	}
	s.Outputs = []Output{{Row: row, Temperature: 1, TopP: 1, Edits: bans(0, int32(all))}}
	require.ErrorIs(t, k.Step(s), ErrNonFinite)
}

// TestEditDivides: a positive logit is divided, a negative one multiplied. Logprobs do not tell the sign of a logit; but what an edit takes off
// each of them must fit one offset between logits and logprobs.
func TestEditDivides(t *testing.T) {
	c := tinyConfig(0)
	m := tinyModel(t, c, 4)
	k := newCache(t, m, 2, blockSize)
	ids := []int32{3, 1, 4, 1, 5}
	lp := distribution(t, m, ids)
	s := &Step{MaxBlocks: 1}
	row := add(s, ids, 0, []int32{0})
	for v := int32(1); int(v) < c.VocabSize; v++ { // of the tokens 0 and v alone
		edits := append(append(bans(1, v), bans(v+1, int32(c.VocabSize))...), Edit{v, 2, 0})
		s.Outputs = append(s.Outputs, Output{Row: row, Temperature: 1, TopP: 1, Seed: uint64(v), Edits: edits})
	}
	require.NoError(t, k.Step(s))
	var taken []float64 // off logit v by its edit
	for i, id := range s.Sampled {
		one := float64(s.Logprobs[i])
		other := math.Log(-math.Expm1(one))
		after := one - other // logit v - logit 0
		if id == 0 {
			after = -after
		}
		taken = append(taken, lp[i+1]-lp[0]-after)
	}
	for _, first := range []float64{2 * taken[0], -taken[0]} { // logit 1, if it is positive or not
		offset, signs, fits := first-lp[1], map[bool]int{}, true
		for i, d := range taken {
			z := lp[i+1] + offset
			want := z / 2
			if z <= 0 {
				want = -z
			}
			signs[z > 0]++
			fits = fits && math.Abs(want-d) < 2e-3
		}
		if fits {
			require.Positive(t, signs[true])
			require.Positive(t, signs[false])
			return
		}
	}
	t.Fatal("no offset explains what the edits took off")
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
		{Row: row, Temperature: 1e308, TopP: 1, Seed: 4, Edits: []Edit{{Token: int32(c.VocabSize) - 1, Divide: 1, Minus: float32(math.Inf(1))}}},
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
	require.NotEqual(t, int32(c.VocabSize)-1, s.Sampled[5]) // banned
	require.InDelta(t, -math.Log(float64(c.VocabSize-1)), s.Logprobs[5], 1e-5)
}
