//go:build torch

package cgo

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// headCase is a model whose logits are known: its layers add nothing, so that the hidden state of token i is the sign pattern of its
// embedding times the last norm's weight, and all numbers are exact in bfloat16.
type headCase struct {
	model  *Model
	hidden [][]float64 // [V][D] of each token
	weight [][]float64 // [V][D] of the head
	known  map[headKey]headRow
}

type headKey struct {
	token, target int
	temperature   float64
}

type headRow struct {
	logprob, entropy float64
	p                []float64 // [V] softmax
}

// half rounds to bfloat16.
func half(x float64) float64 {
	bits := math.Float32bits(float32(x))
	return float64(math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff))
}

// newHeadCase plants logits of about large for two tokens of each context, a little apart, above a sea of small ones.
func newHeadCase(t *testing.T, vocab int, large float64) *headCase {
	t.Helper()
	const D = 64
	c := ModelConfig{
		VocabSize: vocab, HiddenSize: D, IntermediateSize: 32, NumLayers: 1, NumHeads: 2, NumKVHeads: 1, HeadDim: 32, RMSNormEps: 1e-6,
		InvFreq: make([]float32, 16),
	}
	h := &headCase{model: tinyModel(t, c, 3), known: map[headKey]headRow{}}
	r := rand.New(rand.NewPCG(5, 7))
	set := func(name string, rows, columns int, f func(i, k int) float64) [][]float64 {
		out, data := make([][]float64, rows), make([]byte, 0, 4*rows*columns)
		for i := range out {
			out[i] = make([]float64, columns)
			for k := range out[i] {
				out[i][k] = half(f(i, k))
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(out[i][k])))
			}
		}
		shape := []int64{int64(rows), int64(columns)}
		if rows == 1 {
			shape = shape[1:]
		}
		require.NoError(t, h.model.SetParameter(name, F32, data, shape))
		return out
	}
	for _, p := range h.model.Parameters() {
		if len(p.Shape) == 2 && p.Name != "model.embed_tokens.weight" && p.Name != "lm_head.weight" {
			set(p.Name, int(p.Shape[0]), int(p.Shape[1]), func(int, int) float64 { return 0 })
		}
	}
	sign := func(int, int) float64 { return float64(2*r.IntN(2) - 1) }
	embed := set("model.embed_tokens.weight", vocab, D, sign)
	norm := set("model.norm.weight", 1, D, func(int, int) float64 { return 0.75 + float64(r.IntN(65))/128 })
	h.weight = set("lm_head.weight", vocab, D, func(i, k int) float64 {
		noise := r.NormFloat64() / 16
		if i/2 < 8 { // tokens 2i and 2i+1 follow token i
			return large/D*embed[i/2][k]/norm[0][k]*(1+float64(i%2)/256) + noise
		}
		return noise
	})
	for _, e := range embed {
		row := make([]float64, D)
		for k := range row {
			row[k] = e[k] * norm[0][k]
		}
		h.hidden = append(h.hidden, row)
	}
	h.model.Changed()
	return h
}

// exact computes a row in float64.
func (h *headCase) exact(token, target int, temperature float64) headRow {
	key := headKey{token, target, temperature}
	if row, ok := h.known[key]; ok {
		return row
	}
	z, top := make([]float64, len(h.weight)), math.Inf(-1)
	for v, w := range h.weight {
		for k := range w {
			z[v] += w[k] * h.hidden[token][k] / temperature
		}
		top = max(top, z[v])
	}
	sum := 0.0
	for _, x := range z {
		sum += math.Exp(x - top)
	}
	lse := top + math.Log(sum)
	row := headRow{logprob: z[target] - lse, p: make([]float64, len(z))}
	for v, x := range z {
		row.p[v] = math.Exp(x - lse)
		row.entropy -= row.p[v] * (x - lse)
	}
	h.known[key] = row
	return row
}

// In bfloat16 the head's logits are float32: of large ones bfloat16 keeps steps of 1/8 to 1/2, by which every log-probability would be off.
func TestHalfHeadLogits(t *testing.T) {
	for name, c := range map[string]struct {
		vocab       int
		generic     bool
		large, temp float64
	}{
		"kernels":              {300, false, 40, 1},
		"kernels, larger":      {300, false, 90, 0.7},
		"kernels, many tiles":  {9000, false, 40, 1},
		"generic":              {300, true, 40, 1},
		"generic, larger":      {300, true, 90, 0.7},
		"generic, many chunks": {9000, true, 40, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeadCase(t, c.vocab, c.large)
			require.NoError(t, useGeneric(h.model, c.generic))
			require.NoError(t, h.model.SetDType(BF16))
			ids := []int32{0, 1, 2, 3, 4, 5, 6, 7, 0, 3}
			b := plain(ids, c.temp)
			if c.vocab > 4096 { // rows enough that the vocabulary comes in several tiles, and the rows in several chunks
				b = plain(slices.Repeat(ids, 128), c.temp)
			}
			for i := range b.RowTarget { // planted tokens, the likely ones and others
				b.RowTarget[i] = int32(i % 16)
			}
			got, err := h.model.Infer(b, ForwardOptions{Entropy: true})
			require.NoError(t, err)
			worstLogprob, worstEntropy := 0.0, 0.0
			for i := range got.Logprobs {
				want := h.exact(int(b.Tokens[b.RowToken[i]]), int(b.RowTarget[i]), c.temp)
				worstLogprob = max(worstLogprob, math.Abs(float64(got.Logprobs[i])-want.logprob))
				worstEntropy = max(worstEntropy, math.Abs(float64(got.Entropy[i])-want.entropy))
			}
			t.Logf("from float64 at most: logprobs %.2g, entropy %.2g", worstLogprob, worstEntropy)
			require.Less(t, worstLogprob, 1e-4)
			require.Less(t, worstEntropy, 1e-4)
			h.checkGradient(t, b, c.temp)
		})
	}
}

// checkGradient holds the gradient of the head's weights, of waveLoss, against float64. Its factors are rounded to bfloat16, each with 8 bits
// of its own size: the target's 1 - p must not come out of numbers near 1.
func (h *headCase) checkGradient(t *testing.T, b *Batch, temperature float64) {
	t.Helper()
	waveLoss(t, h.model, b, ForwardOptions{})
	got, err := h.model.Gradient("lm_head.weight")
	require.NoError(t, err)
	D := len(h.hidden[0])
	slope, most := make([][]float64, len(h.hidden)), make([][]float64, len(h.hidden)) // [token][V]: sums over its rows
	for i, row := range b.RowToken {
		token, target, n := int(b.Tokens[row]), int(b.RowTarget[i]), float64(len(b.RowToken))
		exact := h.exact(token, target, temperature)
		if slope[token] == nil {
			slope[token], most[token] = make([]float64, len(exact.p)), make([]float64, len(exact.p))
		}
		dLogprob, dEntropy := math.Cos(float64(i))/n, 0.1*math.Sin(float64(i))/n
		for v, p := range exact.p {
			d := 0.0
			if p > 0 {
				d = -p * (dLogprob + dEntropy*(math.Log(p)+exact.entropy))
			}
			if v == target {
				d += dLogprob
			}
			slope[token][v] += d / temperature
			most[token][v] += math.Abs(d) / temperature
		}
	}
	want, size := make([]float64, len(got)), make([]float64, len(got))
	for token := range slope {
		for v := range slope[token] {
			for k, x := range h.hidden[token] {
				want[v*D+k] += slope[token][v] * x
				size[v*D+k] += most[token][v] * math.Abs(x)
			}
		}
	}
	for i := range got {
		if math.Abs(want[i]-float64(got[i])) > size[i]/128+1e-6 { // require itself would take a second
			require.InDelta(t, want[i], got[i], size[i]/128+1e-6, "lm_head.weight row %d column %d", i/D, i%D)
		}
	}
}
