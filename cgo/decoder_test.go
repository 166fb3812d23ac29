//go:build torch

package cgo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// decoding is a way in which a cache computes by the operations of a device: on the one that tests run on, or on the CPU in its stead.
type decoding struct {
	name     string
	path     path
	dtype    DType
	scripted bool // kernels thread by thread, products and flash attention as those of CUDA
}

func decodings() []decoding {
	if testDevice() != "cpu" {
		return []decoding{{"float32", pathDefault, F32, false}, {"bfloat16", pathDefault, BF16, false}}
	}
	return []decoding{
		{"segments float32", pathSegments, F32, false},
		{"varlen float32", pathVarlen, F32, false},
		{"varlen bfloat16", pathVarlen, BF16, false},
		{"kernels float32", pathSegments, F32, true},
		{"flash and kernels bfloat16", pathFlash, BF16, true},
	}
}

// tolerance bounds how far logprobs lie from those of another order of sums.
func (d decoding) tolerance() float64 {
	if d.dtype == BF16 {
		return 5e-2 // a rounding that falls on the other side is one of a 256th
	}
	return 1e-4 // an H200 was 5.3e-5 off, with a large adapter
}

// script has the CPU stand for a device until the test ends.
func (d decoding) script(t testing.TB) {
	t.Helper()
	if d.scripted {
		scripted(t, "libcuda.so.1")
	}
}

// make is a model that computes so, until the test ends, where the CPU stands for a device.
func (d decoding) make(t testing.TB, c ModelConfig) *Model {
	t.Helper()
	m, err := NewModel(c, testDevice())
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	require.NoError(t, m.SetDType(d.dtype))
	require.NoError(t, setPath(m, d.path))
	return m
}

// of makes m compute so until the test ends.
func (d decoding) of(t *testing.T, m *Model) *Model {
	t.Helper()
	d.script(t)
	require.NoError(t, m.SetDType(d.dtype))
	require.NoError(t, setPath(m, d.path))
	return m
}

func (d decoding) cache(t *testing.T, m *Model, blocks int) *Cache {
	t.Helper()
	k := newCacheOf(t, m, CacheConfig{Blocks: blocks, BlockSize: blockSize, BFloat16: d.dtype == BF16})
	require.False(t, k.BatchInvariant())
	return k
}

// onDevices runs a test in each of the ways.
func onDevices(t *testing.T, test func(t *testing.T, d decoding)) {
	for _, d := range decodings() {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

// deviceModel is tinyModel on the device that tests run on, with heads as flash attention takes them.
func deviceModel(t *testing.T, flavour int) *Model {
	t.Helper()
	c := tinyConfig(flavour)
	if c.HeadDim%8 != 0 {
		c.HeadDim = 8
		c.InvFreq = c.InvFreq[:min(4, len(c.InvFreq))]
		for len(c.InvFreq) < 4 {
			c.InvFreq = append(c.InvFreq, 0.01)
		}
	}
	m, err := NewModel(c, testDevice())
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	randomize(t, m, uint64(flavour))
	return m
}

// A prompt in pieces of any length and then token by token has the logprobs of the forward that trains; in float32 the tokens
// are those of the CPU's decoder too.
func TestDecoderEqualsForward(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		for flavour := range 8 {
			t.Run(fmt.Sprint(flavour), func(t *testing.T) {
				start := LiveHandles()
				m := deviceModel(t, flavour)
				ids := randomIDs(rand.New(rand.NewPCG(4, uint64(flavour))), 40, m.config.VocabSize)
				host, err := NewModel(m.config, "cpu")
				require.NoError(t, err)
				randomize(t, host, uint64(flavour))
				k := newCacheOf(t, host, CacheConfig{Blocks: 8, BlockSize: blockSize})
				want, _ := sampled(t, k, ids, 12)
				require.NoError(t, k.Close())
				require.NoError(t, host.Close())

				k = d.cache(t, d.of(t, m), 8)
				all, got := sampled(t, k, ids, 12, 1, 3, 15, 29)
				if d.dtype == F32 {
					require.Equal(t, want, all)
				}
				mean, most, _ := gap(got, scores(t, m, all, len(ids)))
				t.Logf("worst difference %.1e, mean %.1e", most, mean)
				require.LessOrEqual(t, most, d.tolerance())
				require.NoError(t, k.Close())
				require.NoError(t, m.Close())
				require.Equal(t, start, LiveHandles())
			})
		}
	})
}

// A step of prompts, pieces of prompts and single tokens, of sequences that share blocks, computed in this step or before, gives each
// what it gets alone; whatever lay in the cache's blocks before.
func TestDecoderMixesSequences(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		m := d.of(t, deviceModel(t, 5))
		r := rand.New(rand.NewPCG(8, 8))
		V := m.config.VocabSize
		prefix := randomIDs(r, 16, V)
		k := d.cache(t, m, 40)
		fill := &Step{MaxBlocks: 40} // what other requests left
		var blocks []int32
		for i := range 40 {
			blocks = append(blocks, int32(i))
		}
		add(fill, randomIDs(r, 320, V), 0, blocks)
		require.NoError(t, k.Step(fill))
		before := &Step{MaxBlocks: 4}
		long := randomIDs(r, 27, V)
		add(before, long[:26], 0, []int32{20, 30, 21, 31})
		require.NoError(t, k.Step(before))

		s := &Step{MaxBlocks: 4}
		var all [][]int32
		for i := range 5 {
			ids := append(slices.Clone(prefix), randomIDs(r, 1+3*i, V)...)
			addSharer(s, ids, i)
			all = append(all, ids)
			if i == 1 { // one that is being continued, in their midst
				s.Outputs = append(s.Outputs, greedy(add(s, long, 26, []int32{20, 30, 21, 31})))
				all = append(all, long)
			}
		}
		for range 2 { // and the prefix's last token, which one of those above computes too
			s.Outputs = append(s.Outputs, greedy(add(s, prefix, 15, []int32{4, 9})))
			all = append(all, prefix)
		}
		require.NoError(t, k.Step(s))
		for i, ids := range all {
			alone := &Step{MaxBlocks: 4, Outputs: []Output{{Row: len(ids) - 1, Given: true, Target: s.Sampled[i]}}}
			add(alone, ids, 0, []int32{3, 2, 1, 0})
			require.NoError(t, d.cache(t, m, 4).Step(alone))
			require.InDelta(t, alone.Logprobs[0], s.Logprobs[i], d.tolerance(), "output %d", i)
		}
	})
}

// Steps of single rows are computed at a few sizes, and a device repeats the launches that it recorded of one. Whatever the number of
// sequences, their lengths and the steps between: one gets again what it got first, and what it gets alone; after an update, and with an
// adapter, by the new weights.
func TestDecoderRepeatsSteps(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		m := d.of(t, deviceModel(t, 5))
		r := rand.New(rand.NewPCG(6, 7))
		V := m.config.VocabSize
		const width = 34 // blocks of the longest sequence
		type decode struct {
			step *Step
			ids  [][]int32 // with the token whose logprob is asked for
		}
		var steps []decode
		used := 0
		prompts := &Step{MaxBlocks: width}
		for _, lengths := range [][]int{{9}, {1, 30, 8}, {256}, {257, 4, 17, 2, 2, 3, 40, 16, 1}} {
			one := decode{step: &Step{MaxBlocks: width}}
			for _, n := range lengths {
				ids := randomIDs(r, n+1, V)
				var blocks []int32
				for range (n + blockSize - 1) / blockSize {
					blocks, used = append(blocks, int32(used)), used+1
				}
				if n > 1 {
					add(prompts, ids[:n-1], 0, blocks)
				}
				row := add(one.step, ids[:n], n-1, blocks)
				one.step.Outputs = append(one.step.Outputs, Output{Row: row, Given: true, Target: ids[n]})
				one.ids = append(one.ids, ids)
			}
			slices.Reverse(one.step.Outputs) // an output's row is its own affair
			slices.Reverse(one.ids)
			steps = append(steps, one)
		}
		k := d.cache(t, m, used)
		require.NoError(t, k.Step(prompts))
		const sizes = 3 // of the four steps
		begun, failedBefore := recordings()
		recorded := func(times int) {
			made, failed := recordings()
			if d.scripted || testDevice() != "cpu" {
				require.Equal(t, times*sizes, made-begun)
			}
			require.Equal(t, failedBefore, failed)
		}
		var first [][]float32
		check := func() (got [][]float32) {
			for i, s := range steps {
				require.NoError(t, k.Step(s.step))
				got = append(got, slices.Clone(s.step.Logprobs))
				if len(first) <= i {
					first = append(first, got[i])
				}
				require.LessOrEqual(t, worst(t, got[i], first[i]), d.tolerance(), "step %d", i)
			}
			return got
		}
		check() // computed
		check() // recorded
		require.Equal(t, check(), check(), "what is repeated is the same")
		recorded(1)
		alone := func() {
			for i, s := range steps {
				for j, ids := range s.ids {
					n := len(ids) - 1
					require.InDelta(t, scores(t, m, ids, n)[0], s.step.Logprobs[j], 2*d.tolerance(), "step %d, output %d", i, j) // of 13 numbers, some behind 256 others
				}
			}
		}
		alone()
		change := func() {
			require.NoError(t, k.Step(prompts))
			before := first
			first = nil
			check()
			check()
			alone()
			for i := range before {
				require.Greater(t, worst(t, before[i], first[i]), 1e-3, "step %d", i)
			}
		}
		randomize(t, m, 77)
		change()
		begun, _ = recordings() // in bfloat16 the weights may lie elsewhere now
		require.NoError(t, m.AddAdapter(AdapterConfig{Rank: 2, Alpha: 8, Targets: []string{"q_proj", "up_proj"}, Seed: 1}))
		for _, p := range m.Trained() {
			require.NoError(t, m.SetParameter(p.Name, F32, bytesOf(normal(r, int(p.Elements()))), p.Shape))
		}
		m.Changed()
		change()
		recorded(1) // they lie elsewhere
	})
}

// A recording that gets no memory is tried again, ever more seldom, and the steps meanwhile are computed; one that was made before is
// still repeated.
func TestDecoderRecordsOnceThereIsMemory(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		if !d.scripted {
			t.Skip("a device that has memory records at the first try")
		}
		m := d.of(t, deviceModel(t, 5))
		k := d.cache(t, m, 2)
		of := func(rows int) *Step {
			s := &Step{MaxBlocks: 1}
			for i := range rows {
				s.Outputs = append(s.Outputs, Output{Row: add(s, []int32{int32(3 + i)}, 0, []int32{int32(i)}), Given: true, Target: 5})
			}
			return s
		}
		since := func(begun, failed int) [2]int {
			made, lost := recordings()
			return [2]int{made - begun, lost - failed}
		}
		run := func(s *Step, times int) []float32 {
			var first []float32
			for range times {
				require.NoError(t, k.Step(s))
				if first == nil {
					first = slices.Clone(s.Logprobs)
				}
				require.LessOrEqual(t, worst(t, s.Logprobs, first), d.tolerance())
			}
			return first
		}
		begun, failed := recordings()
		before := run(of(1), 2)
		require.Equal(t, [2]int{1, 0}, since(begun, failed))

		const most = 1 << 20
		failRecordings(most)
		t.Cleanup(func() { failRecordings(0) })
		run(of(2), 120)
		_, lost := recordings()
		require.InDelta(t, 6, lost-failed, 1, "of 120 steps: each wait is twice as long")
		require.LessOrEqual(t, worst(t, run(of(1), 2), before), d.tolerance())
		require.Equal(t, [2]int{1, lost - failed}, since(begun, failed))

		failRecordings(0)
		run(of(2), 129)
		require.Equal(t, [2]int{2, lost - failed}, since(begun, failed))
	})
}

// Given tokens of a prompt get the forward's logprobs.
func TestDecoderScoresGivenTokens(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		m := d.of(t, deviceModel(t, 6))
		ids := randomIDs(rand.New(rand.NewPCG(1, 2)), 12, m.config.VocabSize)
		s := &Step{MaxBlocks: 2}
		add(s, ids, 0, []int32{0, 1})
		for row := range len(ids) - 1 {
			s.Outputs = append(s.Outputs, Output{Row: row, Given: true, Target: ids[row+1]})
		}
		require.NoError(t, d.cache(t, m, 2).Step(s))
		require.LessOrEqual(t, worst(t, s.Logprobs, scores(t, m, ids, 1)), d.tolerance())
	})
}

// An adapter counts without being merged, also where forwards leave it out; new weights count at once.
func TestDecoderFollowsTheModel(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		m := deviceModel(t, 5)
		require.NoError(t, m.AddAdapter(AdapterConfig{Rank: 3, Alpha: 6, Targets: []string{"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}, Seed: 1}))
		d.of(t, m)
		r := rand.New(rand.NewPCG(2, 3))
		change := func() {
			for _, p := range m.Trained() {
				require.NoError(t, m.SetParameter(p.Name, F32, bytesOf(normal(r, int(p.Elements()))), p.Shape))
			}
			m.Changed()
		}
		change()
		k := d.cache(t, m, 8)
		ids := randomIDs(r, 21, m.config.VocabSize)
		run := func() []float32 {
			all, got := sampled(t, k, ids, 6)
			require.LessOrEqual(t, worst(t, got, scores(t, m, all, len(ids))), d.tolerance())
			return got
		}
		before := run()
		m.SetAdapter(false)
		all, got := sampled(t, k, ids, 6)
		base := scores(t, m, all, len(ids))
		m.SetAdapter(true)
		require.Equal(t, before, got)
		require.Greater(t, worst(t, got, base), 0.1, "the adapter makes a difference")
		change()
		require.NotEqual(t, before, run())
	})
}

// A cache on a device computes as its model does, and says so where it is asked for something else.
func TestDecoderRefuses(t *testing.T) {
	onDevices(t, func(t *testing.T, d decoding) {
		m := d.of(t, deviceModel(t, 5))
		_, err := NewCache(m, CacheConfig{Blocks: 2, BlockSize: 8, BFloat16: d.dtype != BF16})
		require.ErrorIs(t, err, ErrInput)
		require.ErrorContains(t, err, "on a device they are the same")
		k := d.cache(t, m, 2)
		other := BF16
		if d.dtype == BF16 {
			other = F32
		}
		require.NoError(t, m.SetDType(other))
		s := &Step{MaxBlocks: 1}
		s.Outputs = []Output{greedy(add(s, []int32{1, 2, 3}, 0, []int32{0}))}
		require.ErrorIs(t, k.Step(s), ErrInput)
		require.NoError(t, m.SetDType(d.dtype))
		require.NoError(t, k.Step(s))
	})
}
