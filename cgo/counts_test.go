//go:build torch

package cgo

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deviceCount is what a forward and backward asks of a device.
type deviceCount struct {
	calls       int     // of libtorch's operators and of own kernels
	bytes, flop float64 // read and written; of matrix products and attention
}

// countShapes are the lines of the table: what packedShape makes of batch.
var countShapes = []struct{ name, batch string }{
	{"8 sequences of 1,024", "8x1024"},
	{"1 sequence of 8,192", "1x8192"},
	{"8 prompts of 200, 8 answers of 89 to each: 72 segments", "8x200+8x89"},
}

// countBatch predicts a target for every token.
func countBatch(t *testing.T, text string, vocab int) *Batch {
	t.Helper()
	b, err := packedShape(text, vocab)
	require.NoError(t, err)
	b.RowToken, b.RowTarget = nil, b.Tokens
	for i := range b.Tokens {
		b.RowToken = append(b.RowToken, int32(i))
	}
	return b
}

// flashFLOP is what flash attention multiplies in a layer's forward.
func flashFLOP(c ModelConfig, b *Batch) float64 {
	return 4 * pairsOf(b) * float64(c.NumHeads*c.HeadDim)
}

// kernelBytes is what a launch reads and writes, by the formula of its kernel.
func kernelBytes(t *testing.T, c ModelConfig, name string, rows, heads int) float64 {
	t.Helper()
	size, r := 2.0, float64(rows)
	if strings.HasSuffix(name, "_fp32") {
		size = 4
	}
	n := float64(c.HiddenSize)
	if heads > 1 {
		n = float64(heads * c.HeadDim)
	}
	switch strings.TrimSuffix(strings.TrimSuffix(name, "_fp32"), "_bf16") {
	case "af_rms_norm":
		return 2 * r * n * size
	case "af_rms_norm_backward": // of the grid's blocks; the log has them in place of rows, so that its caller gives rows
		return 4 * r * n * size
	case "af_sum_parts":
		return 0 // below a thousandth of the norm's
	case "af_rope":
		return 2 * r * float64((c.NumHeads+c.NumKVHeads)*c.HeadDim) * size
	case "af_swiglu":
		return 3 * r * float64(c.IntermediateSize) * size
	case "af_swiglu_backward":
		return 6 * r * float64(c.IntermediateSize) * size
	case "af_head_forward":
		return r * float64(c.VocabSize) * 4
	case "af_head_backward":
		return r * float64(c.VocabSize) * (4 + size)
	}
	t.Fatalf("no formula for %s", name)
	return 0
}

// countStep counts a forward and backward in bfloat16 on a scripted device.
func countStep(t *testing.T, c ModelConfig, b *Batch, checkpoint bool) (n deviceCount) {
	t.Helper()
	log := scripted(t, "libcuda.so.1")
	t.Setenv("SCRIPTED_CUDA_FAULT", "count")
	file := filepath.Join(t.TempDir(), "counts")
	require.NoError(t, b.Validate(c.VocabSize))
	require.NoError(t, countOnDevice(c, BF16, b, checkpoint, file))
	each := func(path string, f func(fields []string)) {
		text, err := os.Open(path)
		if os.IsNotExist(err) {
			return
		}
		require.NoError(t, err)
		defer text.Close()
		for lines := bufio.NewScanner(text); lines.Scan(); {
			f(strings.Fields(lines.Text()))
		}
	}
	number := func(s string) int { v, err := strconv.Atoi(s); require.NoError(t, err); return v }
	each(file, func(f []string) {
		calls, bytes, flop := number(f[1]), number(f[2]), number(f[3])
		n.calls, n.bytes, n.flop = n.calls+calls, n.bytes+float64(bytes), n.flop+float64(flop)
		switch f[0] {
		case "aten::_flash_attention_forward":
			n.flop += float64(calls) * flashFLOP(c, b)
		case "aten::_flash_attention_backward": // five products to the forward's two
			n.flop += float64(calls) * flashFLOP(c, b) * 2.5
		}
		t.Log(strings.Join(f, " "))
	})
	each(log, func(f []string) {
		x, y, _ := strings.Cut(f[1], "x")
		rows := number(x)
		if strings.HasPrefix(f[0], "af_rms_norm_backward") {
			rows = len(b.Tokens)
		}
		n.calls++
		n.bytes += kernelBytes(t, c, f[0], rows, number(y))
	})
	return n
}

// What a step asks of a device, counted without one: before and after own kernels and flash attention. The table of
// docs/performance.md holds these numbers.
func TestDeviceCounts(t *testing.T) {
	c, err := modelShape("0.5B")
	require.NoError(t, err)
	var table strings.Builder
	fmt.Fprintf(&table, "| a forward and backward of Qwen2.5-0.5B's shape, bfloat16 | tokens | launches before | now | GB before | now | TFLOP before | now |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range countShapes {
		b := countBatch(t, s.batch, c.VocabSize)
		var of [2]deviceCount
		for i, now := range []bool{false, true} {
			t.Run(fmt.Sprint(s.name, now), func(t *testing.T) {
				if !now {
					t.Setenv("AGENTFLY_ATTENTION", "segments")
					t.Setenv("AGENTFLY_CUDA_KERNELS", "0")
				}
				of[i] = countStep(t, c, b, false)
			})
		}
		if of[1].calls == 0 {
			t.Skip("nothing was counted")
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %.0f | %.0f | %.1f | %.1f |\n", s.name, thousands(len(b.Tokens)), thousands(of[0].calls), thousands(of[1].calls),
			of[0].bytes/1e9, of[1].bytes/1e9, of[0].flop/1e12, of[1].flop/1e12)
		require.Less(t, of[1].calls, of[0].calls)
		require.Less(t, of[1].bytes, of[0].bytes)
		// Three times the products of the weights and the head, and attention's: no less, and not a twentieth more.
		tokens := float64(len(b.Tokens))
		perLayer := c.HiddenSize*(c.NumHeads+2*c.NumKVHeads)*c.HeadDim + c.HiddenSize*c.NumHeads*c.HeadDim + 3*c.HiddenSize*c.IntermediateSize
		parameters := float64(c.NumLayers*perLayer + c.VocabSize*c.HiddenSize)
		want := 6*tokens*parameters + 2*tokens*float64(c.VocabSize*c.HiddenSize) + 3.5*float64(c.NumLayers)*flashFLOP(c, b) // the head's logits are made again
		require.InEpsilon(t, want, of[1].flop, 1e-3)
	}
	path := "../docs/performance.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	const begin, end = "<!-- device-counts -->\n", "<!-- /device-counts -->"
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "%s has no %s", path, begin)
	old, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if os.Getenv("AGENTFLY_UPDATE_COUNTS") != "" {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	require.Equal(t, old, table.String(), "run AGENTFLY_UPDATE_COUNTS=1 scripts/torchgo test -run DeviceCounts ./cgo")
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The head computes equal rows once: a batch with each of its rows four times multiplies no more than with each once.
func TestEqualRowsAreComputedOnce(t *testing.T) {
	c, err := modelShape("0.5B")
	require.NoError(t, err)
	b := countBatch(t, "1x64+4x16", c.VocabSize)
	once := countStep(t, c, b, false)
	b.RowToken, b.RowTarget = slices.Repeat(b.RowToken, 4), slices.Repeat(b.RowTarget, 4)
	require.Equal(t, once.flop, countStep(t, c, b, false).flop)
}
