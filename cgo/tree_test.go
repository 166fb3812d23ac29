//go:build torch

package cgo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// forest is a random batch and, for every leaf, the same computation as a plain sequence.
type forest struct {
	batch  *Batch
	leaves []leaf
}

type leaf struct {
	sequence *Batch
	path     []int // its tokens in batch
	rows     []int // row of batch for every row of sequence
}

// makeForest predicts every token of a leaf from the one before it, which for the first is the parent's last: that row's
// token repeats once per child, with other targets.
func makeForest(random *rand.Rand, vocab int, temperature float64, lengths [][]int) forest {
	f := forest{batch: &Batch{Temperature: temperature}}
	b := f.batch
	var paths [][]int // token indices from the root, by segment
	var level []int   // segments of the level above
	for depth, of := range lengths {
		var next []int
		parents := level
		if depth == 0 {
			parents = []int{-1, -1} // two trees
		}
		for _, parent := range parents {
			for _, length := range of {
				var path []int
				if parent >= 0 {
					path = append(path, paths[parent]...)
				}
				index, start := len(b.SegmentStart), len(b.Tokens)
				b.SegmentStart = append(b.SegmentStart, int32(start))
				b.SegmentLength = append(b.SegmentLength, int32(length))
				b.SegmentParent = append(b.SegmentParent, int32(parent))
				for i := range length {
					b.Tokens = append(b.Tokens, random.Int32N(int32(vocab)))
					b.Positions = append(b.Positions, int32(len(path)))
					path = append(path, start+i)
				}
				paths = append(paths, path)
				next = append(next, index)
				if depth == len(lengths)-1 {
					f.addLeaf(path, length)
				}
			}
		}
		level = next
	}
	return f
}

func (f *forest) addLeaf(path []int, own int) {
	b := f.batch
	l := leaf{path: path, sequence: &Batch{SegmentStart: []int32{0}, SegmentLength: []int32{int32(len(path))}, SegmentParent: []int32{-1}, Temperature: b.Temperature}}
	for i, t := range path {
		l.sequence.Tokens = append(l.sequence.Tokens, b.Tokens[t])
		l.sequence.Positions = append(l.sequence.Positions, int32(i))
	}
	f.addRows(&l, own)
	f.leaves = append(f.leaves, l)
}

// predictAll has every leaf predict all of its tokens but the first.
func (f *forest) predictAll() {
	b := f.batch
	b.RowToken, b.RowTarget = nil, nil
	for k := range f.leaves {
		l := &f.leaves[k]
		l.rows, l.sequence.RowToken, l.sequence.RowTarget = nil, nil, nil
		f.addRows(l, len(l.path)-1)
	}
}

// addRows has a leaf predict its last n tokens.
func (f *forest) addRows(l *leaf, n int) {
	b := f.batch
	for i := len(l.path) - n; i < len(l.path); i++ {
		l.rows = append(l.rows, len(b.RowToken))
		b.RowToken = append(b.RowToken, int32(l.path[i-1]))
		b.RowTarget = append(b.RowTarget, b.Tokens[l.path[i]])
		l.sequence.RowToken = append(l.sequence.RowToken, int32(i-1))
		l.sequence.RowTarget = append(l.sequence.RowTarget, b.Tokens[l.path[i]])
	}
}

func pick(values []float32, rows []int) []float32 {
	out := make([]float32, len(rows))
	for i, r := range rows {
		out[i] = values[r]
	}
	return out
}

func gradients(t testing.TB, m *Model) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, p := range m.Trained() {
		g, err := m.Gradient(p.Name)
		require.NoError(t, err)
		all[p.Name] = g
	}
	return all
}

// A shared prefix computed once gives the values of every sequence alone, and the sum of their gradients.
func TestTreeEqualsSequences(t *testing.T) {
	for _, name := range []string{"smollm", "mistral", "qwen3", "llama_biases"} {
		for _, v := range variants {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				g := loadGolden(t, name)
				m := g.model(t)
				require.NoError(t, useGeneric(m, v.generic))
				o, err := NewOptimizer(m, DefaultAdamW(), nil)
				require.NoError(t, err)
				defer o.Close()
				random := rand.New(rand.NewPCG(1, 2))
				f := makeForest(random, g.Config.VocabSize, g.Temperature, [][]int{{150, 3}, {1, 70}, {5, 9, 33}})
				require.Len(t, f.leaves, 24)
				wl, we := make([]float32, len(f.batch.RowToken)), make([]float32, len(f.batch.RowToken))
				for i := range wl {
					wl[i], we[i] = random.Float32()-0.5, 0.1*(random.Float32()-0.5)
				}

				logprobs, entropy, err := m.Logprobs(f.batch)
				require.NoError(t, err)
				weightedLoss(t, m, f.batch, v.options, wl, we)
				tree := gradients(t, m)
				require.NoError(t, o.ZeroGrad())
				for _, l := range f.leaves {
					alone, aloneEntropy, err := m.Logprobs(l.sequence)
					require.NoError(t, err)
					require.LessOrEqual(t, worst(t, pick(logprobs, l.rows), alone), 2e-5)
					require.LessOrEqual(t, worst(t, pick(entropy, l.rows), aloneEntropy), 2e-5)
					weightedLoss(t, m, l.sequence, v.options, pick(wl, l.rows), pick(we, l.rows))
				}
				for name, want := range gradients(t, m) {
					require.LessOrEqual(t, relative(t, tree[name], want), 2e-5, name)
				}
			})
		}
	}
}

// Rows of leaves that predict every token from their root on, of which most are those of other leaves: a row that stands several times is computed once,
// and has the sum of its gradients.
func TestSharedRowsEqualSequences(t *testing.T) {
	for _, name := range []string{"smollm", "llama_biases"} {
		for _, v := range variants {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				g := loadGolden(t, name)
				m := g.model(t)
				require.NoError(t, useGeneric(m, v.generic))
				withValueHead(t, m)
				o, err := NewOptimizer(m, DefaultAdamW(), nil)
				require.NoError(t, err)
				defer o.Close()
				random := rand.New(rand.NewPCG(3, 4))
				f := makeForest(random, g.Config.VocabSize, g.Temperature, [][]int{{40, 3}, {1, 20}, {5, 9}})
				f.predictAll()
				distinct := map[[2]int32]bool{}
				for i, token := range f.batch.RowToken {
					distinct[[2]int32{token, f.batch.RowTarget[i]}] = true
				}
				n := len(f.batch.RowToken)
				require.Greater(t, n, 2*len(distinct))
				wl, we, wv := make([]float32, n), make([]float32, n), make([]float32, n)
				for i := range wl {
					wl[i], we[i], wv[i] = random.Float32()-0.5, 0.1*(random.Float32()-0.5), 0.1*(random.Float32()-0.5)
				}
				got, err := m.Infer(f.batch, ForwardOptions{Entropy: true, Values: true})
				require.NoError(t, err)
				weightedLoss(t, m, f.batch, v.options, wl, we)
				valueLoss(t, m, f.batch, v.options, wl, wv)
				tree := gradients(t, m)
				require.NoError(t, o.ZeroGrad())
				for _, l := range f.leaves {
					alone, err := m.Infer(l.sequence, ForwardOptions{Entropy: true, Values: true})
					require.NoError(t, err)
					require.LessOrEqual(t, worst(t, pick(got.Logprobs, l.rows), alone.Logprobs), 2e-5)
					require.LessOrEqual(t, worst(t, pick(got.Entropy, l.rows), alone.Entropy), 2e-5)
					require.LessOrEqual(t, worst(t, pick(got.Values, l.rows), alone.Values), 2e-5)
					weightedLoss(t, m, l.sequence, v.options, pick(wl, l.rows), pick(we, l.rows))
					valueLoss(t, m, l.sequence, v.options, pick(wl, l.rows), pick(wv, l.rows))
				}
				for name, want := range gradients(t, m) {
					require.LessOrEqual(t, relative(t, tree[name], want), 2e-5, name)
				}
			})
		}
	}
}

// The head's tiles cut both rows and vocabulary here; the generic path cuts elsewhere.
func TestHeadTiles(t *testing.T) {
	c := loadGolden(t, "llama").Config
	c.VocabSize, c.NumLayers = 3001, 1
	m, err := NewModel(c, testDevice())
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Init(3, 0.5))
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	random := rand.New(rand.NewPCG(5, 6))
	b := &Batch{SegmentStart: []int32{0}, SegmentLength: []int32{40}, SegmentParent: []int32{-1}, Temperature: 0.8}
	for i := range 40 {
		b.Tokens = append(b.Tokens, random.Int32N(3001))
		b.Positions = append(b.Positions, int32(i))
	}
	var wl, we []float32
	for range 5000 {
		b.RowToken = append(b.RowToken, random.Int32N(40))
		b.RowTarget = append(b.RowTarget, random.Int32N(3001))
		wl, we = append(wl, float32(random.IntN(3)-1)), append(we, 0.1*float32(random.IntN(3)-1))
	}
	var values [2][]float32
	var gradient [2]map[string][]float32
	for i, generic := range []bool{false, true} {
		require.NoError(t, useGeneric(m, generic))
		logprobs, entropy, err := m.Logprobs(b)
		require.NoError(t, err)
		values[i] = append(logprobs, entropy...)
		weightedLoss(t, m, b, ForwardOptions{}, wl, we)
		gradient[i] = gradients(t, m)
		require.NoError(t, o.ZeroGrad())
	}
	require.LessOrEqual(t, worst(t, values[0], values[1]), 2e-5)
	for name, want := range gradient[1] {
		require.LessOrEqual(t, relative(t, gradient[0][name], want), 2e-5, name)
	}
}

// The same input gives the same bits: scores, gradients, parameters after a step.
func TestSameBits(t *testing.T) {
	c := smolLM2()
	c.NumLayers, c.VocabSize, c.IntermediateSize = 1, 500, 256
	b := mainJob(c.VocabSize)
	var first [][]float32
	for run := range 3 {
		m, err := NewModel(c, testDevice())
		require.NoError(t, err)
		require.NoError(t, m.Init(7, 0.05))
		o, err := NewOptimizer(m, DefaultAdamW(), nil)
		require.NoError(t, err)
		var all [][]float32
		for range 2 {
			logprobs, entropy, err := m.Logprobs(b)
			require.NoError(t, err)
			all = append(all, logprobs, entropy)
			waveLoss(t, m, b, ForwardOptions{Checkpoint: layersIf(run == 2)})
			for _, p := range m.Trained() {
				g, err := m.Gradient(p.Name)
				require.NoError(t, err)
				all = append(all, g)
			}
			_, err = o.Step(1e-3, 1)
			require.NoError(t, err)
		}
		require.NoError(t, o.Close())
		require.NoError(t, m.Close())
		if run == 0 {
			first = all
			continue
		}
		for i := range all {
			require.Equal(t, first[i], all[i], "run %d, array %d", run, i)
		}
	}
}

func TestInit(t *testing.T) {
	c := loadGolden(t, "qwen2").Config
	c.VocabSize = 5000
	m, err := NewModel(c, testDevice())
	require.NoError(t, err)
	defer m.Close()
	read := func(name string) []float32 {
		v, err := m.Parameter(name)
		require.NoError(t, err)
		return v
	}
	require.NoError(t, m.Init(11, 0.02))
	embed := read("model.embed_tokens.weight")
	var sum, squares float64
	for _, v := range embed {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(embed))
	require.InDelta(t, 0, sum/n, 0.02*4/math.Sqrt(n))
	require.InDelta(t, 0.02, math.Sqrt(squares/n), 0.02*4/math.Sqrt(2*n))
	for _, v := range read("model.layers.1.post_attention_layernorm.weight") {
		require.Equal(t, float32(1), v)
	}
	for _, v := range read("model.layers.0.self_attn.q_proj.bias") {
		require.Equal(t, float32(0), v)
	}
	require.NoError(t, m.Init(12, 0.02))
	require.NotEqual(t, embed[:8], read("model.embed_tokens.weight")[:8])
	require.NoError(t, m.Init(11, 0.02))
	require.Equal(t, embed, read("model.embed_tokens.weight"))
	require.NotEqual(t, read("model.layers.0.mlp.up_proj.weight"), read("model.layers.1.mlp.up_proj.weight"))
}
