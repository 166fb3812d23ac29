package modelfile

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// pattern returns float32 data as bit patterns, so that NaN and -0 compare.
func pattern(data []byte) []uint32 {
	out := make([]uint32, len(data)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return out
}

func floatBits(values []float32) []uint32 {
	out := make([]uint32, len(values))
	for i, v := range values {
		out[i] = math.Float32bits(v)
	}
	return out
}

// TestDequantise: every supported type gives the bits of Python's gguf.quants (scripts/goldens/gguf_models.py).
func TestDequantise(t *testing.T) {
	m, err := Open("testdata/gguf/quants.gguf")
	require.NoError(t, err)
	defer m.Close()
	want, err := openSafetensors("testdata/gguf/quants.safetensors")
	require.NoError(t, err)
	defer want.close()
	names := []string{"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"}
	require.ElementsMatch(t, names, m.Names())
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			got, err := m.Tensor(name)
			require.NoError(t, err)
			values, err := got.Float32()
			require.NoError(t, err)
			expected, err := want.tensor(name)
			require.NoError(t, err)
			require.Equal(t, expected.Shape, got.Shape)
			require.Equal(t, pattern(expected.Data), floatBits(values))
		})
	}
}

// TestDequantiseByHand: one block of Q4_1 worked out on paper, d = 0.5, m = -1, nibbles 0..15 low and 15..0 high.
func TestDequantiseByHand(t *testing.T) {
	in := []byte{0x00, 0x38, 0x00, 0xbc}
	for i := range 16 {
		in = append(in, byte(i|(15-i)<<4))
	}
	out := make([]float32, 32)
	ggufTypes[3].dequantise(in, out)
	require.Equal(t, []float32{-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5}, out[:16])
	require.Equal(t, []float32{6.5, 6, 5.5, 5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5, 0, -0.5, -1}, out[16:])
}

func TestGGUFModels(t *testing.T) {
	for _, name := range []string{"llama", "qwen2", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			m, err := Open("testdata/gguf/" + name + ".gguf")
			require.NoError(t, err)
			defer m.Close()
			want, err := openSafetensors("testdata/gguf/" + name + ".safetensors")
			require.NoError(t, err)
			defer want.close()
			require.ElementsMatch(t, want.names(), m.Names())
			for _, tensor := range m.Names() {
				got, err := m.Tensor(tensor)
				require.NoError(t, err)
				values, err := got.Float32()
				require.NoError(t, err)
				expected, err := want.tensor(tensor)
				require.NoError(t, err)
				require.Equal(t, expected.Shape, got.Shape, tensor)
				require.Equal(t, pattern(expected.Data), floatBits(values), tensor)
			}
		})
	}
}

func TestGGUFConfig(t *testing.T) {
	base := Config{
		VocabSize: 16, HiddenSize: 64, IntermediateSize: 96, NumHeads: 4, NumKVHeads: 2, RMSNormEps: 1e-6,
		Rope: Rope{Type: "default", Theta: 500000}, MaxPositionEmbeddings: 131072, BOS: -1, PAD: 15, EOS: []int{14},
	}
	llama, qwen2, qwen3 := base, base, base
	llama.Architecture, llama.ModelType, llama.NumLayers, llama.HeadDim = "LlamaForCausalLM", "llama", 2, 16
	llama.QKVBias, llama.OBias = true, true
	llama.Rope = Rope{Type: "llama3", Theta: 500000, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPosition: 8192}
	qwen2.Architecture, qwen2.ModelType, qwen2.NumLayers, qwen2.HeadDim = "Qwen2ForCausalLM", "qwen2", 1, 16
	qwen2.QKVBias, qwen2.TieWordEmbeddings = true, true
	qwen3.Architecture, qwen3.ModelType, qwen3.NumLayers, qwen3.HeadDim = "Qwen3ForCausalLM", "qwen3", 1, 24
	qwen3.QKNorm, qwen3.TieWordEmbeddings = true, true
	for name, want := range map[string]Config{"llama": llama, "qwen2": qwen2, "qwen3": qwen3} {
		m, err := Open("testdata/gguf/" + name + ".gguf")
		require.NoError(t, err)
		defer m.Close()
		got, err := m.Config()
		require.NoError(t, err)
		require.Equal(t, want, *got, name)

		// what is saved for it reads back as the same configuration
		dir := t.TempDir()
		saved, err := got.ConfigJSON(BF16)
		require.NoError(t, err)
		require.NoError(t, WriteJSON(filepath.Join(dir, "config.json"), saved))
		again, err := (&Model{Path: dir, dir: dir}).Config()
		require.NoError(t, err)
		again.raw = nil
		require.Equal(t, want, *again, name)
	}
}

func TestGGUFVocabulary(t *testing.T) {
	m, err := Open("testdata/gguf/qwen2.gguf")
	require.NoError(t, err)
	defer m.Close()
	source, err := m.Tokenizer()
	require.NoError(t, err)
	require.Nil(t, source.JSON)
	no := false
	require.Equal(t, &Vocabulary{
		Model: "gpt2", Pre: "qwen2",
		Tokens: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "Ġ", "ab", "Ġa", "<|end|>", "<|pad|>"},
		Types:  []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3},
		Merges: []string{"a b", "Ġ a"},
		BOS:    -1, EOS: 14, UNK: -1, PAD: 15, EOT: -1, AddBOS: &no,
	}, source.GGUF)
	special, err := m.SpecialTokens()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"eos_token": "<|end|>", "pad_token": "<|pad|>"}, special)
	templates, err := m.ChatTemplates()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"default": "{{ messages }}", "tool_use": "{{ tools }}"}, templates)
}

// Some writers say that there is no such token by the largest u32, others by -1.
func TestGGUFWithoutASpecialToken(t *testing.T) {
	for _, key := range []string{"bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id", "eot_token_id"} {
		for name, none := range map[string]any{"u32": 1<<32 - 1, "i32": int32(-1)} {
			t.Run(key+" "+name, func(t *testing.T) {
				g := pairs(t, map[string]any{"tokenizer.ggml.tokens": []string{"a", "b"}, "tokenizer.ggml." + key: none})
				v, err := g.vocabulary()
				require.NoError(t, err)
				require.Equal(t, []int{-1, -1, -1, -1, -1}, []int{v.BOS, v.EOS, v.UNK, v.PAD, v.EOT})
				special, err := (&Model{gguf: g}).SpecialTokens()
				require.NoError(t, err)
				require.Empty(t, special)
			})
		}
	}
	_, err := pairs(t, map[string]any{"tokenizer.ggml.tokens": []string{"a", "b"}, "tokenizer.ggml.bos_token_id": 2}).vocabulary()
	require.EqualError(t, err, "modelfile: x.gguf: tokenizer.ggml.bos_token_id is 2, but there are 2 tokens")
}

// ggufBuilder assembles small files by hand.
type ggufBuilder struct{ b []byte }

func (g *ggufBuilder) u32(v ...uint32) *ggufBuilder {
	for _, x := range v {
		g.b = binary.LittleEndian.AppendUint32(g.b, x)
	}
	return g
}

func (g *ggufBuilder) u64(v ...uint64) *ggufBuilder {
	for _, x := range v {
		g.b = binary.LittleEndian.AppendUint64(g.b, x)
	}
	return g
}

func (g *ggufBuilder) text(s string) *ggufBuilder {
	g.u64(uint64(len(s)))
	g.b = append(g.b, s...)
	return g
}

func (g *ggufBuilder) pad(n int) *ggufBuilder {
	for len(g.b)%n != 0 {
		g.b = append(g.b, 0)
	}
	return g
}

func ggufStart(version uint32, tensors, pairs uint64) *ggufBuilder {
	return (&ggufBuilder{b: []byte("GGUF")}).u32(version).u64(tensors, pairs)
}

// oneTensor has a single F32 tensor of the given dimensions, then size bytes of data.
func oneTensor(kind uint32, offset uint64, size int, dims ...uint64) []byte {
	g := ggufStart(3, 1, 0).text("w").u32(uint32(len(dims))).u64(dims...).u32(kind).u64(offset).pad(32)
	return append(g.b, make([]byte, size)...)
}

func TestGGUFRefuses(t *testing.T) {
	whole, err := os.ReadFile("testdata/gguf/qwen2.gguf")
	require.NoError(t, err)
	two := ggufStart(3, 2, 0).
		text("v").u32(1).u64(8).u32(0).u64(0).
		text("w").u32(1).u64(8).u32(0).u64(0).pad(32)
	cases := map[string]struct {
		data []byte
		want string
	}{
		"empty":             {nil, "does not begin with GGUF"},
		"not gguf":          {[]byte("PK\x03\x04 and so on, long enough for a header"), "does not begin with GGUF"},
		"version 1":         {ggufStart(1, 0, 0).b, "it has version 1; 2 and 3 are supported"},
		"big-endian":        {append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 16)...), "big-endian"},
		"too many pairs":    {ggufStart(3, 0, 1<<60).b, "claims 1152921504606846976 metadata pairs in 24 bytes"},
		"too many tensors":  {ggufStart(3, 1<<60, 0).b, "claims 1152921504606846976 tensors"},
		"key beyond file":   {append(ggufStart(3, 0, 1).u64(1<<63).b, make([]byte, 64)...), "metadata pair 0: the file ends inside its header"},
		"unknown kind":      {append(ggufStart(3, 0, 1).text("k").u32(99).b, make([]byte, 64)...), "metadata key k: value type 99 is not supported"},
		"array of arrays":   {append(ggufStart(3, 0, 1).text("k").u32(9, 9).u64(1).b, make([]byte, 64)...), "value type 9 is not supported"},
		"huge array":        {append(ggufStart(3, 0, 1).text("k").u32(9, 8).u64(1<<40).b, make([]byte, 64)...), "an array claims 1099511627776 elements"},
		"long array":        {append(ggufStart(3, 0, 1).text("k").u32(9, 12).u64(60).b, make([]byte, 64)...), "the file ends inside its header"},
		"key twice":         {append(ggufStart(3, 0, 2).text("k").u32(4, 1).text("k").u32(4, 1).b, make([]byte, 64)...), "metadata key k stands there twice"},
		"odd alignment":     {append(ggufStart(3, 0, 1).text("general.alignment").u32(4, 24).b, make([]byte, 64)...), "general.alignment is not a power of two"},
		"five dimensions":   {oneTensor(0, 0, 128, 1, 1, 1, 1, 1), "tensor w: has 5 dimensions"},
		"zero dimension":    {oneTensor(0, 0, 128, 4, 0), "dimension 1 is 0"},
		"overflow":          {oneTensor(0, 0, 128, 1<<40, 1<<40), "zero or too large"},
		"unknown type":      {oneTensor(77, 0, 128, 32), "has the unknown type 77"},
		"no whole blocks":   {oneTensor(2, 0, 128, 33), "rows of 33 elements, which are not whole Q4_0 blocks of 32"},
		"beyond the file":   {oneTensor(0, 0, 127, 32), "ends at byte 128 of the data, but the file has 127"},
		"offset beyond":     {oneTensor(0, 1<<59, 128, 32), "ends at byte"},
		"offset huge":       {oneTensor(0, 1<<61, 128, 32), "has the offset"},
		"offset misaligned": {oneTensor(0, 8, 256, 32), "offset 8, which is not a multiple of 32"},
		"overlap":           {append(two.b, make([]byte, 64)...), "tensor w overlaps the one before it"},
		"truncated":         {whole[:len(whole)-40], "but the file has"},
		"truncated header":  {whole[:400], "the file ends inside its header"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseGGUF("x.gguf", c.data)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "modelfile: x.gguf: ")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// pairs builds a file with metadata and no tensors.
func pairs(t *testing.T, values map[string]any) *ggufFile {
	g := ggufStart(3, 0, uint64(len(values)))
	for key, value := range values {
		g.text(key)
		switch v := value.(type) {
		case string:
			g.u32(8).text(v)
		case int:
			g.u32(4, uint32(v))
		case int32:
			g.u32(5, uint32(v))
		case []string:
			g.u32(9, 8).u64(uint64(len(v)))
			for _, s := range v {
				g.text(s)
			}
		case float64:
			g.u32(6, math.Float32bits(float32(v)))
		}
	}
	f, err := parseGGUF("x.gguf", g.b)
	require.NoError(t, err)
	return f
}

func TestGGUFConfigRefuses(t *testing.T) {
	with := func(changes map[string]any) map[string]any {
		out := map[string]any{
			"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64, "llama.feed_forward_length": 96,
			"llama.context_length": 128, "llama.attention.head_count": 4, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": 32,
		}
		for k, v := range changes {
			out[k] = v
		}
		return out
	}
	_, err := pairs(t, with(nil)).config()
	require.NoError(t, err)
	cases := map[string]struct {
		change map[string]any
		want   string
	}{
		"architecture": {map[string]any{"general.architecture": "gemma3"}, `general.architecture is "gemma3", which is not supported; supported are llama, qwen2, qwen3`},
		"experts":      {map[string]any{"llama.expert_count": 8}, "mixture of 8 experts"},
		"no layers":    {map[string]any{"llama.block_count": 0}, "llama.block_count is missing or not a positive integer"},
		"text as size": {map[string]any{"llama.context_length": "long"}, "llama.context_length is missing or not a positive integer"},
		"partial":      {map[string]any{"llama.rope.dimension_count": 8, "llama.attention.key_length": 16}, "partial rotation is not supported"},
		"longrope":     {map[string]any{"llama.rope.scaling.type": "longrope"}, `rope.scaling.type is "longrope"; none, linear and yarn are supported`},
		"yarn extras":  {map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0, "llama.rope.scaling.attn_factor": 0.5}, "attn_factor is not supported"},
		"heads":        {map[string]any{"llama.attention.head_count_kv": 3}, "4 attention heads are not a multiple of 3 key-value heads"},
		"base as text": {map[string]any{"llama.rope.freq_base": "500000"}, "rope_theta is 0, expected a positive number"},
		"no epsilon":   {map[string]any{"llama.attention.layer_norm_rms_epsilon": "x"}, "rms_norm_eps is 0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := pairs(t, with(c.change)).config()
			require.ErrorContains(t, err, c.want)
		})
	}
	linear, err := pairs(t, with(map[string]any{"llama.rope.scaling.factor": 2.5})).config()
	require.NoError(t, err)
	require.Equal(t, Rope{Type: "linear", Theta: 10000, Factor: 2.5}, linear.Rope)
	whole, err := pairs(t, with(map[string]any{"llama.rope.freq_base": 500000, "llama.rope.scaling.factor": int32(2)})).config()
	require.NoError(t, err)
	require.Equal(t, Rope{Type: "linear", Theta: 500000, Factor: 2}, whole.Rope, "a writer may say a whole number as an integer")
	yarn, err := pairs(t, with(map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0, "llama.rope.scaling.original_context_length": 64})).config()
	require.NoError(t, err)
	require.Equal(t, Rope{Type: "yarn", Theta: 10000, Factor: 4, OriginalMaxPosition: 64, BetaFast: 32, BetaSlow: 1, Truncate: true}, yarn.Rope)
	window, err := pairs(t, with(map[string]any{"llama.attention.sliding_window": 64})).config()
	require.NoError(t, err)
	require.Equal(t, "MistralForCausalLM", window.Architecture)
	require.Equal(t, 64, window.MaxContext())
}

// Llama 3.1 ends a message that waits for a tool with another token than the others.
func TestGGUFEndOfMessage(t *testing.T) {
	c := &Config{VocabSize: 10}
	c.specialIDs(pairs(t, map[string]any{"tokenizer.ggml.eos_token_id": 9, "tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 8}))
	require.Equal(t, []int{9, 8}, c.EOS)
}

// TestGGUFBiases: a combination that no class of transformers has could not be saved, so it is refused at the start.
func TestGGUFBiases(t *testing.T) {
	g, err := openGGUF("testdata/gguf/llama.gguf")
	require.NoError(t, err)
	defer g.unmap()
	delete(g.tensors, "blk.0.attn_output.bias")
	_, err = g.config()
	require.EqualError(t, err, "modelfile: testdata/gguf/llama.gguf: biases on q/k/v true, on the attention output false, on the feed-forward false are not what LlamaForCausalLM has")
}

func TestUnpermuteNeedsWholeHeads(t *testing.T) {
	_, err := unpermute(make([]byte, 24), []int{6, 1}, 2)
	require.ErrorContains(t, err, "has 6 rows, which are not 2 heads of an even size")
	// two heads of four rows, one byte each: pairs (0,1) (2,3) come apart into halves
	out, err := unpermute([]byte("abcdABCD"), []int{8, 1}, 2)
	require.NoError(t, err)
	require.Equal(t, "acbdACBD", string(out))
}

// FuzzGGUF: no input makes the reader panic, and what it accepts can be used.
func FuzzGGUF(f *testing.F) {
	f.Add(ggufStart(3, 0, 3).text("general.architecture").u32(8).text("qwen2").
		text("qwen2.block_count").u32(4, 2).text("qwen2.rope.scaling.factor").u32(6, 0x40000000).b)
	f.Add(oneTensor(8, 0, 68, 32, 2))
	f.Add(ggufStart(3, 0, 1).text("k").u32(9, 8).u64(2).text("a").text("b").b)
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := parseGGUF("fuzz.gguf", data)
		if err != nil {
			return
		}
		m := newGGUFModel(g)
		for _, name := range m.names() {
			tensor, err := m.tensor(name)
			if err == nil && len(tensor.Data) != tensor.Elements()*tensor.DType.Size() {
				t.Fatalf("%s: %d bytes for shape %v", name, len(tensor.Data), tensor.Shape)
			}
		}
		_, _ = g.config()
		_, _ = g.vocabulary()
	})
}
