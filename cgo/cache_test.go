//go:build torch

package cgo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const blockSize = 8

// tinyConfig is a random shape; flavour selects biases, q/k norm and tying.
func tinyConfig(flavour int) ModelConfig {
	c := ModelConfig{
		VocabSize: 97 + flavour, HiddenSize: 24 + 4*flavour, IntermediateSize: 44, NumLayers: 2, NumHeads: 6, NumKVHeads: []int{1, 2, 3, 6}[flavour%4],
		HeadDim: []int{8, 16, 20, 6}[flavour/2%4], RMSNormEps: 1e-5, TieWordEmbeddings: flavour%2 == 0, QKVBias: flavour%3 == 0,
		OBias: flavour%4 == 1, MLPBias: flavour%5 == 2, QKNorm: flavour%3 == 1, AttentionFactor: 1 + 0.1*float64(flavour%2),
	}
	for i := range c.HeadDim / 2 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(10000, -2*float64(i)/float64(c.HeadDim))))
	}
	return c
}

// tinyModel has random values in every parameter, biases and norms too.
func tinyModel(t testing.TB, c ModelConfig, seed uint64) *Model {
	t.Helper()
	m, err := NewModel(c, "cpu")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	randomize(t, m, seed)
	return m
}

func randomize(t testing.TB, m *Model, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for _, p := range m.Parameters() {
		data := make([]byte, 0, 4*p.Elements())
		for range p.Elements() {
			v := float32(r.NormFloat64() * 0.3)
			if len(p.Shape) == 1 {
				v = 1 + 0.2*v
			}
			bits := math.Float32bits(v)
			data = append(data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		require.NoError(t, m.SetParameter(p.Name, F32, data, p.Shape))
	}
	m.Changed()
}

func newCache(t testing.TB, m *Model, blocks, size int) *Cache {
	t.Helper()
	return newCacheOf(t, m, CacheConfig{Blocks: blocks, BlockSize: size})
}

func newCacheOf(t testing.TB, m *Model, c CacheConfig) *Cache {
	t.Helper()
	k, err := NewCache(m, c)
	require.NoError(t, err)
	t.Cleanup(func() { k.Close() })
	return k
}

func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// add puts rows from..len(ids) of a sequence with these blocks into s and returns the index of the last row.
func add(s *Step, ids []int32, from int, blocks []int32) int {
	sequence := len(s.Blocks) / s.MaxBlocks
	row := make([]int32, s.MaxBlocks)
	copy(row, blocks)
	s.Blocks = append(s.Blocks, row...)
	for p := from; p < len(ids); p++ {
		s.Tokens = append(s.Tokens, ids[p])
		s.Positions = append(s.Positions, int32(p))
		s.Sequence = append(s.Sequence, int32(sequence))
	}
	return len(s.Tokens) - 1
}

func greedy(row int) Output { return Output{Row: row, TopP: 1} }

// scores are the trainer's logprobs of ids[from:] given what is before.
func scores(t testing.TB, m *Model, ids []int32, from int) []float32 {
	t.Helper()
	lp, _, err := m.Logprobs(plain(ids, 1))
	require.NoError(t, err)
	return lp[from-1:]
}

// The engine decodes step by step, the trainer computes everything at once: the same logprobs.
func TestCacheEqualsForward(t *testing.T) {
	for flavour := range 8 {
		t.Run(fmt.Sprint(flavour), func(t *testing.T) {
			start := LiveHandles()
			c := tinyConfig(flavour)
			m := tinyModel(t, c, uint64(flavour))
			k := newCache(t, m, 8, blockSize)
			r := rand.New(rand.NewPCG(3, uint64(flavour)))
			ids := randomIDs(r, 13, c.VocabSize)
			blocks := []int32{5, 0, 7, 2, 1, 6}
			var got []float32
			for prompt, from := len(ids), 0; len(ids) < prompt+30; {
				s := &Step{MaxBlocks: len(blocks)}
				s.Outputs = []Output{{Row: add(s, ids, from, blocks), Temperature: 1, TopP: 1, Seed: 7, Counter: uint64(len(ids))}}
				require.NoError(t, k.Step(s))
				from = len(ids)
				ids = append(ids, s.Sampled[0])
				got = append(got, s.Logprobs[0])
			}
			d := worst(t, got, scores(t, m, ids, 13))
			t.Logf("worst difference %.1e", d)
			require.LessOrEqual(t, d, 2e-5)
			require.NoError(t, k.Close())
			require.NoError(t, m.Close())
			require.Equal(t, start, LiveHandles())
		})
	}
}

// However a sequence's rows are cut into steps, whatever stands beside them, on one to three threads: the same bits.
func TestCacheIsBatchInvariant(t *testing.T) {
	inBothTypes(t, batchInvariant)
}

// inBothTypes runs a test of a cache in float32 and in bfloat16.
func inBothTypes(t *testing.T, test func(t *testing.T, c CacheConfig)) {
	t.Run("float32", func(t *testing.T) { test(t, CacheConfig{BlockSize: blockSize}) })
	t.Run("bfloat16", func(t *testing.T) { test(t, CacheConfig{BlockSize: blockSize, BFloat16: true}) })
}

func batchInvariant(t *testing.T, config CacheConfig) {
	config.Blocks = 64
	c := tinyConfig(2)
	c.HiddenSize, c.IntermediateSize = 432, 400 // two pieces of the inner dimension, work for more than one thread
	m := tinyModel(t, c, 1)
	r := rand.New(rand.NewPCG(1, 2))
	const tokens = 37
	ids := randomIDs(r, tokens, c.VocabSize)
	blocks := []int32{0, 1, 2, 3, 4}
	sample := Output{Temperature: 0.7, TopP: 0.9, TopK: 20, MinP: 0.01, Seed: 5, Counter: 3}
	alone := func() float32 {
		k := newCacheOf(t, m, config)
		s := &Step{MaxBlocks: len(blocks)}
		sample.Row = add(s, ids, 0, blocks)
		s.Outputs = []Output{sample}
		require.NoError(t, k.Step(s))
		return s.Logprobs[0]
	}
	want := alone()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	SetThreads(1)
	require.Equal(t, want, alone(), "one thread")
	defer SetThreads(runtime.NumCPU())
	for trial := range 20 {
		SetThreads(2 + trial%2)
		k := newCacheOf(t, m, config)
		for from := 0; from < tokens; {
			to := min(tokens, from+1+r.IntN(12))
			s := &Step{MaxBlocks: len(blocks)}
			for i := range r.IntN(7) { // company before and after it
				other := randomIDs(r, 1+r.IntN(30), c.VocabSize)
				b := int32(8 + 4*i)
				s.Outputs = append(s.Outputs, greedy(add(s, other, 0, []int32{b, b + 1, b + 2, b + 3})))
			}
			sample.Row = add(s, ids[:to], from, blocks)
			s.Outputs = append(s.Outputs, sample)
			mine := len(s.Outputs) - 1
			for i := range r.IntN(3) {
				b := int32(40 + 4*i)
				s.Outputs = append(s.Outputs, greedy(add(s, randomIDs(r, 1+r.IntN(20), c.VocabSize), 0, []int32{b, b + 1, b + 2})))
			}
			require.NoError(t, k.Step(s))
			if from = to; to == tokens {
				require.Equal(t, want, s.Logprobs[mine], "trial %d", trial)
			}
		}
	}
}

// Sequences share the blocks of a prefix, also when it is computed in the very step in which they read it.
func TestCacheSharedPrefix(t *testing.T) {
	inBothTypes(t, sharedPrefix)
}

// addSharer adds the sequence number i of those that share a prefix of 16 tokens, in blocks 4 and 9; number 2 computes it for all.
func addSharer(s *Step, ids []int32, i int) {
	from := 16
	if i == 2 {
		from = 0
	}
	b := int32(10 + 2*i)
	s.Outputs = append(s.Outputs, greedy(add(s, ids, from, []int32{4, 9, b, b + 1})))
}

func sharedPrefix(t *testing.T, config CacheConfig) {
	config.Blocks = 32
	c := tinyConfig(5)
	m := tinyModel(t, c, 9)
	r := rand.New(rand.NewPCG(8, 8))
	prefix := randomIDs(r, 16, c.VocabSize)
	fresh := func(ids []int32) (int32, float32) {
		k := newCacheOf(t, m, config)
		s := &Step{MaxBlocks: 4}
		s.Outputs = []Output{greedy(add(s, ids, 0, []int32{3, 2, 1, 0}))}
		require.NoError(t, k.Step(s))
		return s.Sampled[0], s.Logprobs[0]
	}
	k := newCacheOf(t, m, config)
	s := &Step{MaxBlocks: 4}
	var all [][]int32
	for i := range 5 {
		ids := append(append([]int32(nil), prefix...), randomIDs(r, 3+i, c.VocabSize)...)
		addSharer(s, ids, i)
		all = append(all, ids)
	}
	require.NoError(t, k.Step(s))
	for i, ids := range all {
		token, logprob := fresh(ids)
		require.Equal(t, token, s.Sampled[i])
		require.Equal(t, logprob, s.Logprobs[i])
	}
}

// Given tokens get the trainer's logprobs, and the same bits as when they are sampled.
func TestCacheScoresGivenTokens(t *testing.T) {
	inBothTypes(t, scoresGivenTokens)
}

func scoresGivenTokens(t *testing.T, config CacheConfig) {
	config.Blocks = 4
	c := tinyConfig(6)
	m := tinyModel(t, c, 4)
	k := newCacheOf(t, m, config)
	ids := randomIDs(rand.New(rand.NewPCG(1, 2)), 12, c.VocabSize)
	s := &Step{MaxBlocks: 2}
	add(s, ids, 0, []int32{0, 1})
	for row := range len(ids) - 1 {
		s.Outputs = append(s.Outputs, Output{Row: row, Given: true, Target: ids[row+1]})
	}
	s.Outputs = append(s.Outputs, greedy(len(ids)-1))
	require.NoError(t, k.Step(s))
	require.Equal(t, ids[1:], s.Sampled[:len(ids)-1])
	if config.BFloat16 {
		require.NoError(t, m.SetDType(BF16))
	}
	require.LessOrEqual(t, worst(t, s.Logprobs[:len(ids)-1], scores(t, m, ids, 1)), 2e-5)
	again := &Step{MaxBlocks: 2, Outputs: []Output{{Row: len(ids) - 1, Given: true, Target: s.Sampled[len(ids)-1]}}}
	add(again, ids, 0, []int32{0, 1})
	require.NoError(t, k.Step(again))
	require.Equal(t, s.Logprobs[len(ids)-1], again.Logprobs[0])
}

// Changed weights are packed again; a cache that outlives its model refuses.
func TestCacheFollowsTheModel(t *testing.T) {
	c := tinyConfig(4)
	m := tinyModel(t, c, 1)
	k := newCache(t, m, 4, blockSize)
	ids := []int32{1, 2, 3, 4, 5}
	run := func() []float32 {
		s := &Step{MaxBlocks: 1}
		s.Outputs = []Output{greedy(add(s, ids, 0, []int32{0}))}
		require.NoError(t, k.Step(s))
		return []float32{s.Logprobs[0], scores(t, m, append(append([]int32(nil), ids...), s.Sampled[0]), len(ids))[0]}
	}
	before := run()
	require.InDelta(t, before[1], before[0], 2e-5)
	randomize(t, m, 2)
	after := run()
	require.InDelta(t, after[1], after[0], 2e-5)
	require.NotEqual(t, before[0], after[0])
	require.NoError(t, m.Close())
	s := &Step{MaxBlocks: 1}
	add(s, ids, 0, []int32{0})
	require.ErrorIs(t, k.Step(s), ErrClosed)
}

func TestCacheRefuses(t *testing.T) {
	c := tinyConfig(0)
	m := tinyModel(t, c, 1)
	for _, bad := range []CacheConfig{{Blocks: 0, BlockSize: 8}, {Blocks: -1, BlockSize: 8}, {Blocks: 4}, {Blocks: 4, BlockSize: 12}, {Blocks: 4, BlockSize: 2048}, {Blocks: 1 << 40, BlockSize: 8}} {
		_, err := NewCache(m, bad)
		require.ErrorIs(t, err, ErrInput, "%v", bad)
	}
	k := newCache(t, m, 4, blockSize)
	good := func() *Step {
		s := &Step{MaxBlocks: 2}
		s.Outputs = []Output{greedy(add(s, []int32{1, 2, 3}, 0, []int32{0, 1}))}
		return s
	}
	require.NoError(t, k.Step(good()))
	for name, spoil := range map[string]func(*Step){
		"no rows":           func(s *Step) { s.Tokens, s.Positions, s.Sequence = nil, nil, nil },
		"positions":         func(s *Step) { s.Positions = s.Positions[:2] },
		"table":             func(s *Step) { s.Blocks = s.Blocks[:1] },
		"no table":          func(s *Step) { s.Blocks = nil },
		"MaxBlocks":         func(s *Step) { s.MaxBlocks = 0 },
		"token":             func(s *Step) { s.Tokens[1] = int32(c.VocabSize) },
		"negative token":    func(s *Step) { s.Tokens[1] = -1 },
		"position":          func(s *Step) { s.Positions[2] = 16 },
		"negative position": func(s *Step) { s.Positions[2] = -1 },
		"sequence":          func(s *Step) { s.Sequence[0] = 1 },
		"block":             func(s *Step) { s.Blocks[0] = 4 },
		"negative block":    func(s *Step) { s.Blocks[0] = -1 },
		"output":            func(s *Step) { s.Outputs[0].Row = 3 },
		"temperature":       func(s *Step) { s.Outputs[0].Temperature = -1 },
		"NaN":               func(s *Step) { s.Outputs[0].Temperature = math.NaN() },
		"infinite":          func(s *Step) { s.Outputs[0].Temperature = math.Inf(1) },
		"target":            func(s *Step) { s.Outputs[0] = Output{Row: 2, Given: true, Target: int32(c.VocabSize)} },
		"negative target":   func(s *Step) { s.Outputs[0] = Output{Row: 2, Given: true, Target: -2} },
		"TopP":              func(s *Step) { s.Outputs[0].TopP = 0 },
		"TopP 2":            func(s *Step) { s.Outputs[0].TopP = 2 },
		"TopK":              func(s *Step) { s.Outputs[0].TopK = -1 },
		"MinP":              func(s *Step) { s.Outputs[0].MinP = 1 },
	} {
		s := good()
		spoil(s)
		require.ErrorIs(t, k.Step(s), ErrInput, name)
	}
	s := good()
	s.Blocks[1] = 99 // not read: the sequence ends in its first block
	require.NoError(t, k.Step(s))
	require.NoError(t, k.Close())
	require.NoError(t, k.Close())
	require.ErrorIs(t, k.Step(good()), ErrClosed)
}

func TestCacheNonFinite(t *testing.T) {
	c := tinyConfig(1)
	m := tinyModel(t, c, 1)
	norm := make([]byte, 4*c.HiddenSize)
	copy(norm[8:], []byte{0, 0, 0xc0, 0x7f}) // a NaN
	require.NoError(t, m.SetParameter("model.norm.weight", F32, norm, []int64{int64(c.HiddenSize)}))
	m.Changed()
	k := newCache(t, m, 2, blockSize)
	for _, temperature := range []float64{0, 1} {
		s := &Step{MaxBlocks: 1}
		s.Outputs = []Output{{Row: add(s, []int32{1, 2}, 0, []int32{0}), Temperature: temperature, TopP: 1}}
		require.ErrorIs(t, k.Step(s), ErrNonFinite)
	}
}

// gap is how far logprobs lie from others: on average, at most, and with their sign.
func gap(a, b []float32) (mean, most, bias float64) {
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		mean, most, bias = mean+math.Abs(d)/float64(len(a)), max(most, math.Abs(d)), bias+d/float64(len(a))
	}
	return mean, most, bias
}

// sampled computes ids in the pieces that end at ends, then samples n tokens one by one; the logprobs are theirs.
func sampled(t testing.TB, k *Cache, ids []int32, n int, ends ...int) ([]int32, []float32) {
	t.Helper()
	var blocks []int32
	for i := range (len(ids)+n)/blockSize + 1 {
		blocks = append(blocks, int32(i))
	}
	ids, logprobs := slices.Clone(ids), []float32(nil)
	for from, prompt := 0, len(ids); len(ids) < prompt+n; {
		to := len(ids)
		if len(ends) > 0 {
			to, ends = ends[0], ends[1:]
		}
		s := &Step{MaxBlocks: len(blocks)}
		s.Outputs = []Output{{Row: add(s, ids[:to], from, blocks), Temperature: 1, TopP: 1, Seed: 7, Counter: uint64(to)}}
		require.NoError(t, k.Step(s))
		if from = to; to == len(ids) {
			ids, logprobs = append(ids, s.Sampled[0]), append(logprobs, s.Logprobs[0])
		}
	}
	return ids, logprobs
}

// In bfloat16 the engine rounds where the trainer's forward rounds, and both add in one order: apart are the last bits of the
// logits and of the softmax. Rounded at the same places but summed in another order they would drift apart with every layer.
func TestCacheEqualsForwardInBFloat16(t *testing.T) {
	same := func(t *testing.T, m *Model, ids []int32) {
		t.Helper()
		exact := scores(t, m, ids, 1)
		require.NoError(t, m.SetDType(BF16))
		k := newCacheOf(t, m, CacheConfig{Blocks: (len(ids)+40)/blockSize + 1, BlockSize: blockSize, BFloat16: true})
		all, got := sampled(t, k, ids, 40, 1, len(ids)/3)
		_, again := sampled(t, k, ids, 40)
		require.Equal(t, got, again, "in pieces and whole")
		mean, most, bias := gap(got, scores(t, m, all, len(ids)))
		wide, _, _ := gap(scores(t, m, ids, 1), exact)
		t.Logf("engine and trainer in bfloat16: mean %.1e, at most %.1e, bias %.1e; from float32 %.1e", mean, most, bias, wide)
		require.Greater(t, wide, 1e-4, "it computes in bfloat16")
		require.Less(t, mean, 1e-5)
		require.Less(t, most, 5e-5)
	}
	for _, name := range []string{"llama", "llama_biases", "smollm", "mistral", "qwen2", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			g := loadGolden(t, name)
			same(t, g.model(t), g.IDs)
		})
	}
	for flavour := range 8 {
		t.Run(fmt.Sprint(flavour), func(t *testing.T) {
			c := tinyConfig(flavour)
			c.HiddenSize, c.IntermediateSize = 430+flavour, 401 // two pieces of the inner dimension, an odd one
			same(t, tinyModel(t, c, 9), randomIDs(rand.New(rand.NewPCG(4, uint64(flavour))), 100, c.VocabSize))
		})
	}
}

// A forest of prefixes gives every sequence the bits, up to the logits', that it has alone. CUDA's products and attention have
// kernels by the size of a batch, which add in other orders: there the two are as far apart as roundings take them.
func TestTreeEqualsSequencesInBFloat16(t *testing.T) {
	bound := 2e-5
	if testDevice() != "cpu" {
		bound = 3e-2
	}
	for _, name := range []string{"smollm", "mistral", "qwen3", "llama_biases"} {
		g := loadGolden(t, name)
		m := g.model(t)
		require.NoError(t, m.SetDType(BF16))
		f := makeForest(rand.New(rand.NewPCG(1, 2)), g.Config.VocabSize, g.Temperature, [][]int{{150, 3}, {1, 70}, {5, 9, 33}})
		logprobs, _, err := m.Logprobs(f.batch)
		require.NoError(t, err)
		for _, l := range f.leaves {
			alone, _, err := m.Logprobs(l.sequence)
			require.NoError(t, err)
			require.LessOrEqual(t, worst(t, pick(logprobs, l.rows), alone), bound, name)
		}
	}
}

// Rows of several sequences may be the same token of a shared block: each gets its logprob, and the block holds its bits.
func TestCacheSharedLastToken(t *testing.T) {
	inBothTypes(t, sharedLastToken)
}

func sharedLastToken(t *testing.T, config CacheConfig) {
	config.Blocks = 8
	c := tinyConfig(2)
	m := tinyModel(t, c, 1)
	ids := randomIDs(rand.New(rand.NewPCG(8, 8)), 2*blockSize, c.VocabSize)
	k := newCacheOf(t, m, config)
	first := &Step{MaxBlocks: 2}
	first.Outputs = []Output{greedy(add(first, ids, 0, []int32{4, 2}))}
	require.NoError(t, k.Step(first))
	again := &Step{MaxBlocks: 2}
	for range 5 {
		again.Outputs = append(again.Outputs, greedy(add(again, ids, len(ids)-1, []int32{4, 2})))
	}
	require.NoError(t, k.Step(again))
	for i := range 5 {
		require.Equal(t, first.Sampled[0], again.Sampled[i])
		require.Equal(t, first.Logprobs[0], again.Logprobs[i])
	}
}
