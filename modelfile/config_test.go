package modelfile

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// edit returns a valid config.json of the model type with some keys changed; a nil value removes the key.
func edit(t testing.TB, modelType string, changes map[string]any) []byte {
	values := map[string]any{
		"architectures": []string{architectures[modelType]}, "model_type": modelType, "vocab_size": 32, "hidden_size": 64,
		"intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
		"max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2,
	}
	maps.Copy(values, changes)
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	data, err := json.Marshal(values)
	require.NoError(t, err)
	return data
}

// null stands for a JSON null in edit.
var null = json.RawMessage("null")

func TestParseConfigFamilies(t *testing.T) {
	base := Config{
		VocabSize: 32, HiddenSize: 64, IntermediateSize: 96, NumLayers: 4, NumHeads: 4, NumKVHeads: 2, HeadDim: 16, RMSNormEps: 1e-5,
		Rope: Rope{Type: "default", Theta: 10000}, MaxPositionEmbeddings: 1024, BOS: 1, PAD: -1, EOS: []int{2},
	}
	cases := map[string]struct {
		kind   string
		change map[string]any
		want   func(c *Config)
	}{
		"llama":        {"llama", nil, func(c *Config) {}},
		"llama biases": {"llama", map[string]any{"attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true}, func(c *Config) { c.QKVBias, c.OBias, c.MLPBias, c.TieWordEmbeddings = true, true, true, true }},
		"llama heads":  {"llama", map[string]any{"num_key_value_heads": nil, "head_dim": 32}, func(c *Config) { c.NumKVHeads, c.HeadDim = 4, 32 }},
		"llama defaults": {"llama", map[string]any{"max_position_embeddings": nil, "rms_norm_eps": nil, "bos_token_id": nil, "eos_token_id": nil}, func(c *Config) {
			c.MaxPositionEmbeddings, c.RMSNormEps = 2048, 1e-6
		}},
		"no ids":           {"llama", map[string]any{"bos_token_id": null, "eos_token_id": null, "pad_token_id": -1}, func(c *Config) { c.BOS, c.EOS = -1, nil }},
		"list of eos":      {"llama", map[string]any{"eos_token_id": []int{2, 7, 9}}, func(c *Config) { c.EOS = []int{2, 7, 9} }},
		"mistral":          {"mistral", map[string]any{"sliding_window": null}, func(c *Config) {}},
		"mistral window":   {"mistral", map[string]any{"sliding_window": 256}, func(c *Config) { c.SlidingWindow = 256 }},
		"mistral default":  {"mistral", nil, func(c *Config) { c.SlidingWindow = 4096 }},
		"qwen2":            {"qwen2", map[string]any{"use_sliding_window": false, "sliding_window": 64, "attention_bias": false}, func(c *Config) { c.QKVBias = true }},
		"qwen2 window":     {"qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 2}, func(c *Config) { c.QKVBias, c.SlidingWindow = true, 64 }},
		"qwen2 no layer":   {"qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 4}, func(c *Config) { c.QKVBias = true }},
		"qwen3":            {"qwen3", nil, func(c *Config) { c.QKNorm, c.HeadDim, c.BOS = true, 128, 1 }},
		"qwen3 biases":     {"qwen3", map[string]any{"attention_bias": true, "head_dim": 16}, func(c *Config) { c.QKNorm, c.QKVBias, c.OBias = true, true, true }},
		"layer types":      {"qwen3", map[string]any{"head_dim": 16, "use_sliding_window": true, "sliding_window": 32, "layer_types": []string{"full_attention", "full_attention", "full_attention", "sliding_attention"}}, func(c *Config) { c.QKNorm, c.SlidingWindow = true, 32 }},
		"full layer types": {"qwen3", map[string]any{"head_dim": 16, "use_sliding_window": true, "sliding_window": 32, "layer_types": []string{"full_attention", "full_attention", "full_attention", "full_attention"}}, func(c *Config) { c.QKNorm = true }},
		"no architectures": {"llama", map[string]any{"architectures": nil}, func(c *Config) {}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := base
			want.ModelType, want.Architecture = c.kind, architectures[c.kind]
			c.want(&want)
			got, err := ParseConfig(edit(t, c.kind, c.change), nil)
			require.NoError(t, err)
			got.raw = nil
			require.Equal(t, want, *got)
		})
	}
}

func TestParseConfigRefuses(t *testing.T) {
	cases := map[string]struct {
		kind   string
		change map[string]any
		want   string
	}{
		"architecture":     {"llama", map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "model_type": "gemma3"}, `config.json: architectures is "Gemma3ForCausalLM", which is not supported; supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM`},
		"model type":       {"llama", map[string]any{"architectures": nil, "model_type": "phi3"}, `model_type is "phi3", which is not supported`},
		"disagreement":     {"llama", map[string]any{"model_type": "qwen2"}, `architectures is "LlamaForCausalLM", but model_type is "qwen2"`},
		"mixture":          {"llama", map[string]any{"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe"}, "Qwen3MoeForCausalLM"},
		"quantised":        {"llama", map[string]any{"quantization_config": map[string]any{"quant_method": "gptq"}}, `quant_method "gptq"; quantised safetensors are not supported`},
		"activation":       {"llama", map[string]any{"hidden_act": "gelu"}, `hidden_act is "gelu"; only silu is supported`},
		"no vocabulary":    {"llama", map[string]any{"vocab_size": nil}, "vocab_size is missing"},
		"no heads":         {"llama", map[string]any{"num_attention_heads": 0}, "num_attention_heads is 0, expected a positive integer"},
		"negative":         {"llama", map[string]any{"hidden_size": -64}, "hidden_size is -64"},
		"fraction":         {"llama", map[string]any{"hidden_size": 64.5}, "hidden_size is 64.5, expected an integer"},
		"text":             {"llama", map[string]any{"num_hidden_layers": "four"}, `num_hidden_layers is "four", expected an integer`},
		"huge":             {"llama", map[string]any{"hidden_size": 1 << 40}, "hidden_size is 1099511627776"},
		"layers":           {"llama", map[string]any{"num_hidden_layers": 100000}, "100000 layers are too many"},
		"grouping":         {"llama", map[string]any{"num_key_value_heads": 3}, "4 attention heads are not a multiple of 3 key-value heads"},
		"odd head":         {"llama", map[string]any{"head_dim": 15}, "head_dim is 15; rotary embeddings need an even one"},
		"qwen3 null head":  {"qwen3", map[string]any{"head_dim": null}, "head_dim is missing"},
		"no head":          {"llama", map[string]any{"hidden_size": 66}, "head_dim is missing"},
		"epsilon":          {"llama", map[string]any{"rms_norm_eps": 0}, "rms_norm_eps is 0"},
		"boolean":          {"llama", map[string]any{"attention_bias": "yes"}, `attention_bias is "yes", expected true or false`},
		"eos outside":      {"llama", map[string]any{"eos_token_id": 32}, "special token id 32 is outside the vocabulary of 32"},
		"eos negative":     {"llama", map[string]any{"eos_token_id": -7}, "eos_token_id has the token id -7"},
		"eos text":         {"llama", map[string]any{"eos_token_id": "end"}, `eos_token_id is "end", expected a token id or a list of them`},
		"rope type":        {"llama", map[string]any{"rope_scaling": map[string]any{"rope_type": "dynamic", "factor": 2}}, `rope type "dynamic" is not supported; supported are default, linear, llama3, yarn`},
		"longrope":         {"llama", map[string]any{"rope_parameters": map[string]any{"rope_type": "longrope"}}, `rope type "longrope" is not supported`},
		"no factor":        {"llama", map[string]any{"rope_scaling": map[string]any{"type": "linear"}}, "rope_scaling: factor is missing"},
		"bad factor":       {"llama", map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": -1}}, "factor is -1, expected a positive number"},
		"llama3 lacks":     {"llama", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8}}, "low_freq_factor is missing"},
		"llama3 equal":     {"llama", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 2, "high_freq_factor": 2}}, "high_freq_factor equals low_freq_factor"},
		"partial":          {"llama", map[string]any{"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; only 1 is supported"},
		"rope by layer":    {"llama", map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_theta": 1}}}, "differs by layer type"},
		"theta":            {"llama", map[string]any{"rope_theta": 0}, "rope_theta is 0"},
		"layer types":      {"qwen3", map[string]any{"layer_types": []string{"full_attention", "linear_attention", "full_attention", "full_attention"}}, `layer_types has "linear_attention"`},
		"layer count":      {"qwen3", map[string]any{"layer_types": []string{"full_attention"}}, "layer_types has 1 entries, but num_hidden_layers is 4"},
		"window is off":    {"qwen3", map[string]any{"layer_types": []string{"full_attention", "full_attention", "full_attention", "sliding_attention"}}, "use_sliding_window is off"},
		"kv heads missing": {"qwen2", map[string]any{"num_key_value_heads": nil}, "num_key_value_heads is missing"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig(edit(t, c.kind, c.change), nil)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	for _, text := range []string{"", "null", "[]", "{", `{"model_type": }`} {
		_, err := ParseConfig([]byte(text), nil)
		require.ErrorContains(t, err, "modelfile: config.json: ", text)
	}
}

func TestGenerationConfigAddsStopIDs(t *testing.T) {
	config := edit(t, "llama", nil)
	c, err := ParseConfig(config, []byte(`{"eos_token_id": [7, 2], "pad_token_id": 5}`))
	require.NoError(t, err)
	require.Equal(t, []int{2, 7}, c.EOS)
	require.Equal(t, 5, c.PAD)
	require.Equal(t, 1, c.BOS)
	_, err = ParseConfig(config, []byte(`{"eos_token_id": 400}`))
	require.ErrorContains(t, err, "generation_config.json: eos_token_id, bos_token_id, pad_token_id hold 400, which is outside the vocabulary of 32")
	_, err = ParseConfig(config, []byte(`[]`))
	require.ErrorContains(t, err, "generation_config.json: not a JSON object")
}

func TestCheckLength(t *testing.T) {
	c, err := ParseConfig(edit(t, "mistral", map[string]any{"sliding_window": 256}), nil)
	require.NoError(t, err)
	require.NoError(t, c.CheckLength(256))
	require.EqualError(t, c.CheckLength(257), "modelfile: a sequence of 257 tokens exceeds the model's sliding window of 256, beyond which its attention is not supported")
	c, err = ParseConfig(edit(t, "llama", nil), nil)
	require.NoError(t, err)
	require.NoError(t, c.CheckLength(1024))
	require.EqualError(t, c.CheckLength(1025), "modelfile: a sequence of 1025 tokens exceeds the model's max_position_embeddings of 1024")
}

// TestRope: the frequencies of transformers (scripts/goldens/rope.py). torch's float32 power is not correctly rounded,
// so a frequency may be the neighbouring float32: 2^-23 of its value.
func TestRope(t *testing.T) {
	data, err := os.ReadFile("testdata/rope.json")
	require.NoError(t, err)
	var cases []struct {
		Name            string
		Config          json.RawMessage
		AttentionFactor float64   `json:"attention_factor"`
		InvFreq         []float64 `json:"inv_freq"`
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 15)
	same, all := 0, 0
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			config, err := ParseConfig(c.Config, nil)
			require.NoError(t, err)
			require.InDelta(t, c.AttentionFactor, config.Rope.AttentionScaling(), 1e-15)
			got := config.Rope.InvFreq(config.HeadDim)
			require.Len(t, got, len(c.InvFreq))
			for i, want := range c.InvFreq {
				require.LessOrEqual(t, math.Abs(float64(got[i])-want), 1.01*math.Exp2(-23)*want, "frequency %d", i)
				all++
				if float64(got[i]) == want {
					same++
				}
			}
		})
	}
	t.Logf("%d of %d frequencies have the same bits", same, all)
}

// FuzzConfig: no configuration makes the parser panic, and what it accepts has frequencies and can be saved.
func FuzzConfig(f *testing.F) {
	for kind := range architectures {
		f.Add(edit(f, kind, nil), []byte(`{"eos_token_id": [3]}`))
	}
	f.Add(edit(f, "llama", map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4}}), []byte("{}"))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		c, err := ParseConfig(config, generation)
		if err != nil {
			return
		}
		if c.HeadDim <= 1<<16 && len(c.Rope.InvFreq(c.HeadDim)) != c.HeadDim/2 {
			t.Fatal("wrong number of frequencies")
		}
		saved, err := c.ConfigJSON(F32)
		require.NoError(t, err)
		_, err = json.Marshal(saved)
		require.NoError(t, err)
	})
}
