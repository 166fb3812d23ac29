//go:build torch

package cgo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomForest is a batch of one to eight segments, each of which continues any earlier one or none.
func randomForest(random *rand.Rand) *Batch {
	b := &Batch{Temperature: 1, RowToken: []int32{0}, RowTarget: []int32{0}}
	var ends []int32 // position behind each segment's last token
	for i := range 1 + random.IntN(8) {
		parent, length := random.IntN(i+1)-1, 1+random.IntN(9)
		if random.IntN(4) == 0 {
			length = 1
		}
		position := int32(0)
		if parent >= 0 {
			position = ends[parent]
		}
		b.SegmentStart = append(b.SegmentStart, int32(len(b.Tokens)))
		b.SegmentLength = append(b.SegmentLength, int32(length))
		b.SegmentParent = append(b.SegmentParent, int32(parent))
		for range length {
			b.Tokens = append(b.Tokens, 0)
			b.Positions = append(b.Positions, position)
			position++
		}
		ends = append(ends, position)
	}
	return b
}

func normal(random *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(random.NormFloat64())
	}
	return out
}

// exactAttention is the same in float64 from the definition: token by token, every key walked from parent to parent.
func exactAttention(c ModelConfig, b *Batch, qkv, dOut []float32) (out, gradient []float64) {
	heads, groups, width := c.NumHeads, c.NumHeads/c.NumKVHeads, c.HeadDim
	stride := (heads + 2*c.NumKVHeads) * width
	out, gradient = make([]float64, len(dOut)), make([]float64, len(qkv))
	dot := func(a, b []float32) (sum float64) {
		for i := range a {
			sum += float64(a[i]) * float64(b[i])
		}
		return sum
	}
	var paths [][]int
	for s := range b.SegmentStart {
		var path []int
		if p := b.SegmentParent[s]; p >= 0 {
			path = append(path, paths[p]...)
		}
		for i := range int(b.SegmentLength[s]) {
			t := int(b.SegmentStart[s]) + i
			path = append(path, t)
			for h := range heads {
				q, k, v := t*stride+h*width, (heads+h/groups)*width, (heads+c.NumKVHeads+h/groups)*width
				scale := 1 / math.Sqrt(float64(width))
				p, total := make([]float64, len(path)), 0.0
				for j, key := range path {
					p[j] = math.Exp(dot(qkv[q:q+width], qkv[key*stride+k:key*stride+k+width]) * scale)
					total += p[j]
				}
				d := dOut[(t*heads+h)*width : (t*heads+h+1)*width]
				delta := 0.0
				for j, key := range path {
					p[j] /= total
					delta += p[j] * dot(d, qkv[key*stride+v:key*stride+v+width])
				}
				for j, key := range path {
					ds := p[j] * (dot(d, qkv[key*stride+v:key*stride+v+width]) - delta) * scale
					for e := range width {
						out[(t*heads+h)*width+e] += p[j] * float64(qkv[key*stride+v+e])
						gradient[q+e] += ds * float64(qkv[key*stride+k+e])
						gradient[key*stride+k+e] += ds * float64(qkv[q+e])
						gradient[key*stride+v+e] += p[j] * float64(d[e])
					}
				}
			}
		}
		paths = append(paths, path)
	}
	return out, gradient
}

// attentionModel has heads queries to keys keys, of width numbers each.
func attentionModel(t testing.TB, heads, keys, width int, device string) *Model {
	t.Helper()
	c := ModelConfig{VocabSize: 8, HiddenSize: 8, IntermediateSize: 8, NumLayers: 1, NumHeads: heads, NumKVHeads: keys, HeadDim: width, RMSNormEps: 1e-6}
	for range width / 2 {
		c.InvFreq = append(c.InvFreq, 1)
	}
	m, err := NewModel(c, device)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// On 1,000 random forests attention as one call of variable lengths gives what one segment at a time and the CPU's own kernels
// give, to 1e-6 and its gradients to 1e-5, and what the definition gives.
func TestVarlenEqualsSegmentsAndKernels(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	shared, single := 0, 0
	for _, shape := range [][3]int{{1, 1, 8}, {4, 2, 16}, {7, 1, 8}, {6, 3, 10}, {3, 3, 2}} {
		m := attentionModel(t, shape[0], shape[1], shape[2], "cpu")
		for range 200 {
			b := randomForest(random)
			T := len(b.Tokens)
			qkv, dOut := normal(random, T*(shape[0]+2*shape[1])*shape[2]), normal(random, T*shape[0]*shape[2])
			run := func(p path) attended {
				require.NoError(t, setPath(m, p))
				a, err := attention(m, b, qkv, dOut)
				require.NoError(t, err)
				return a
			}
			got := run(pathVarlen)
			for _, p := range []path{pathKernels, pathSegments} {
				want := run(p)
				require.LessOrEqual(t, worst(t, got.out, want.out), 1e-6)
				require.LessOrEqual(t, worst(t, got.lse, want.lse), 2e-6)
				require.LessOrEqual(t, worst(t, got.gradient, want.gradient), 1e-5)
			}
			require.Equal(t, got, run(pathVarlen), "the same bits again")
			out, gradient := exactAttention(m.config, b, qkv, dOut)
			for i, x := range out {
				require.InDelta(t, x, got.out[i], 2e-6)
			}
			for i, x := range gradient {
				require.InDelta(t, x, got.gradient[i], 1e-5)
			}
			longest := int32(0)
			for s, p := range b.SegmentParent {
				longest = max(longest, b.SegmentLength[s])
				if p >= 0 {
					shared++
				}
			}
			if longest == 1 {
				single++
			}
		}
	}
	require.Positive(t, shared)
	require.Positive(t, single, "no forest of single tokens, whose longest query is one")
}

// A whole model: values and every gradient, with attention as one call of variable lengths, on a forest and on sequences.
func TestVarlenModel(t *testing.T) {
	for _, name := range goldenNames(t) {
		g := loadGolden(t, name)
		random := rand.New(rand.NewPCG(1, 2))
		f := makeForest(random, g.Config.VocabSize, g.Temperature, [][]int{{20, 3}, {1, 7}, {5, 9, 3}})
		for _, b := range []*Batch{f.batch, plain(g.IDs, g.Temperature)} {
			var values [2][]float32
			var gradient [2]map[string][]float32
			for i, p := range []path{pathSegments, pathVarlen} {
				m := g.model(t)
				require.NoError(t, setPath(m, p))
				logprobs, entropy, err := m.Logprobs(b)
				require.NoError(t, err)
				values[i] = append(logprobs, entropy...)
				waveLoss(t, m, b, ForwardOptions{Checkpoint: AllLayers})
				gradient[i] = gradients(t, m)
			}
			require.LessOrEqual(t, worst(t, values[1], values[0]), 1e-5, name)
			for p, want := range gradient[0] {
				require.LessOrEqual(t, relative(t, gradient[1][p], want), 1e-5, "%s: %s", name, p)
			}
		}
	}
}

// Without the operator, or with a model that it does not take, flash refuses in words.
func TestPathRefuses(t *testing.T) {
	m := attentionModel(t, 2, 1, 8, "cpu")
	require.ErrorIs(t, setPath(m, 9), ErrInput)
	require.ErrorIs(t, setPath(m, -2), ErrInput)
	require.NoError(t, setPath(m, pathFlash))
	_, err := attention(m, &Batch{
		Temperature: 1, Tokens: []int32{0}, Positions: []int32{0}, SegmentStart: []int32{0}, SegmentLength: []int32{1},
		SegmentParent: []int32{-1}, RowToken: []int32{0}, RowTarget: []int32{0},
	}, make([]float32, 32), make([]float32, 16))
	require.ErrorContains(t, err, "_flash_attention_forward")
}
