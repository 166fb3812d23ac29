package modelfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config is what the trainer and the engine need to know of a model's config.json (or of a GGUF's metadata), with the
// defaults of transformers filled in. Sizes are counts of elements.
type Config struct {
	Architecture string // LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM
	ModelType    string // llama, mistral, qwen2 or qwen3

	VocabSize        int
	HiddenSize       int
	IntermediateSize int
	NumLayers        int
	NumHeads         int // query heads; a multiple of NumKVHeads
	NumKVHeads       int
	HeadDim          int // even
	RMSNormEps       float64

	TieWordEmbeddings bool // lm_head.weight is model.embed_tokens.weight
	QKVBias           bool // biases on q_proj, k_proj, v_proj
	OBias             bool // bias on o_proj
	MLPBias           bool // biases on gate_proj, up_proj, down_proj
	QKNorm            bool // RMSNorm over each head of q and k (Qwen3)

	Rope Rope

	MaxPositionEmbeddings int
	SlidingWindow         int // tokens that a sliding layer sees; 0 when no layer has a window

	BOS int   // -1: none
	PAD int   // -1: none
	EOS []int // ids that end a turn, those of generation_config.json included; may be empty

	raw map[string]json.RawMessage // config.json as it was read; nil for a GGUF
}

// architectures: model_type -> class. Everything else is refused by name.
var architectures = map[string]string{
	"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
}

// supportedArchitectures is what error messages list.
const supportedArchitectures = "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"

// ParseConfig reads config.json and, unless it is nil, generation_config.json. What the forward pass depends on is
// checked strictly; keys that do not change it are ignored. The error names the key.
func ParseConfig(config, generation []byte) (*Config, error) {
	c := &Config{}
	o, err := parseObject("config.json", config)
	if err != nil {
		return nil, err
	}
	c.raw = o.values
	c.parseArchitecture(o)
	c.parseSizes(o)
	c.parseAttention(o)
	c.parseRope(o)
	c.parseWindow(o)
	c.BOS, c.PAD = o.optionalID("bos_token_id", legacyID(c.ModelType, 1)), o.optionalID("pad_token_id", -1)
	c.EOS = o.ids("eos_token_id", legacyID(c.ModelType, 2))
	if o.err == nil {
		o.err = c.validate()
	}
	if o.err != nil {
		return nil, o.err
	}
	if generation != nil {
		if err := c.parseGeneration(generation); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// legacyID is the id that transformers assumes for the two oldest families when config.json does not name one.
func legacyID(modelType string, id int) int {
	if modelType == "llama" || modelType == "mistral" {
		return id
	}
	return -1
}

func (c *Config) parseArchitecture(o *object) {
	var names []string
	o.decode("architectures", &names, "a list of class names")
	c.ModelType = o.text("model_type", "")
	if o.err != nil {
		return
	}
	known, ok := architectures[c.ModelType]
	switch {
	case len(names) > 1:
		o.fail("architectures", "lists %d classes, expected one", len(names))
	case len(names) == 1 && !slices.Contains(strings.Split(supportedArchitectures, ", "), names[0]):
		o.fail("architectures", "is %q, which is not supported; supported are %s", names[0], supportedArchitectures)
	case !ok:
		o.fail("model_type", "is %q, which is not supported; supported are %s", c.ModelType, supportedArchitectures)
	case len(names) == 1 && names[0] != known:
		o.fail("architectures", "is %q, but model_type is %q", names[0], c.ModelType)
	}
	c.Architecture = known
	if o.has("quantization_config") {
		var q struct {
			Method string `json:"quant_method"`
		}
		o.decode("quantization_config", &q, "an object")
		o.fail("quantization_config", "has quant_method %q; quantised safetensors are not supported, use the unquantised model or a GGUF", q.Method)
	}
	if a := o.text("hidden_act", "silu"); a != "silu" && a != "swish" {
		o.fail("hidden_act", "is %q; only silu is supported", a)
	}
}

func (c *Config) parseSizes(o *object) {
	c.VocabSize = o.size("vocab_size", 0)
	c.HiddenSize = o.size("hidden_size", 0)
	c.IntermediateSize = o.size("intermediate_size", 0)
	c.NumLayers = o.size("num_hidden_layers", 0)
	c.NumHeads = o.size("num_attention_heads", 0)
	if o.err != nil {
		return
	}
	kv := 0
	if c.ModelType == "llama" || o.isNull("num_key_value_heads") {
		kv = c.NumHeads
	}
	c.NumKVHeads = o.size("num_key_value_heads", kv)
	dim := 0
	switch {
	case c.ModelType == "qwen3":
		if !o.isNull("head_dim") { // Qwen3Config refuses null
			dim = 128 // and assumes this, whatever hidden_size is
		}
	case c.HiddenSize%c.NumHeads == 0:
		dim = c.HiddenSize / c.NumHeads
	}
	c.HeadDim = o.size("head_dim", dim)
	c.RMSNormEps = o.number("rms_norm_eps", 1e-6)
	position := map[string]int{"llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768}[c.ModelType]
	c.MaxPositionEmbeddings = o.size("max_position_embeddings", position)
	c.TieWordEmbeddings = o.boolean("tie_word_embeddings", false)
}

// parseAttention follows the four model classes of transformers: which of the keys each reads, and what each hard-wires.
func (c *Config) parseAttention(o *object) {
	switch c.ModelType {
	case "llama":
		bias := o.boolean("attention_bias", false)
		c.QKVBias, c.OBias, c.MLPBias = bias, bias, o.boolean("mlp_bias", false)
	case "qwen2":
		c.QKVBias = true
	case "qwen3":
		bias := o.boolean("attention_bias", false)
		c.QKVBias, c.OBias, c.QKNorm = bias, bias, true
	}
}

func (c *Config) parseWindow(o *object) {
	switch c.ModelType {
	case "mistral": // every layer has the window; a missing key means 4096 there, null none
		if !o.isNull("sliding_window") {
			c.SlidingWindow = o.size("sliding_window", 4096)
		}
	case "qwen2", "qwen3":
		window := 0
		if o.boolean("use_sliding_window", false) && !o.isNull("sliding_window") {
			window = o.size("sliding_window", 4096)
		}
		var layers []string
		o.decode("layer_types", &layers, "a list of names")
		sliding := window > 0 && o.nonNegative("max_window_layers", 28) < c.NumLayers
		if layers != nil {
			sliding = slices.Contains(layers, "sliding_attention")
			for _, l := range layers {
				if l != "sliding_attention" && l != "full_attention" {
					o.fail("layer_types", "has %q; full_attention and sliding_attention are supported", l)
				}
			}
			if len(layers) != c.NumLayers {
				o.fail("layer_types", "has %d entries, but num_hidden_layers is %d", len(layers), c.NumLayers)
			}
			if sliding && window == 0 {
				o.fail("layer_types", "has sliding_attention, but use_sliding_window is off or sliding_window is null")
			}
		}
		if sliding {
			c.SlidingWindow = window
		}
	}
}

// validate checks the relations between the fields, for config.json and GGUF alike.
func (c *Config) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("modelfile: config: "+format, args...)
	}
	switch {
	case c.NumHeads%c.NumKVHeads != 0:
		return bad("%d attention heads are not a multiple of %d key-value heads", c.NumHeads, c.NumKVHeads)
	case c.HeadDim%2 != 0:
		return bad("head_dim is %d; rotary embeddings need an even one", c.HeadDim)
	case c.RMSNormEps <= 0 || math.IsInf(c.RMSNormEps, 0) || math.IsNaN(c.RMSNormEps):
		return bad("rms_norm_eps is %g, expected a positive number", c.RMSNormEps)
	case c.NumHeads > maxSize/c.HeadDim:
		return bad("%d heads of %d are too many", c.NumHeads, c.HeadDim)
	case c.NumLayers > 4096:
		return bad("%d layers are too many (at most 4096)", c.NumLayers)
	}
	for _, id := range append([]int{c.BOS, c.PAD}, c.EOS...) {
		if id >= c.VocabSize {
			return bad("special token id %d is outside the vocabulary of %d", id, c.VocabSize)
		}
	}
	return c.Rope.validate()
}

// parseGeneration adds the stop ids of generation_config.json, which generation in transformers goes by.
func (c *Config) parseGeneration(data []byte) error {
	o, err := parseObject("generation_config.json", data)
	if err != nil {
		return err
	}
	ids := o.ids("eos_token_id", -1)
	bos, pad := o.optionalID("bos_token_id", c.BOS), o.optionalID("pad_token_id", c.PAD)
	for _, id := range append([]int{bos, pad}, ids...) {
		if id >= c.VocabSize {
			o.fail("eos_token_id, bos_token_id, pad_token_id", "hold %d, which is outside the vocabulary of %d", id, c.VocabSize)
		}
	}
	if o.err != nil {
		return o.err
	}
	c.BOS, c.PAD = bos, pad
	for _, id := range ids {
		if !slices.Contains(c.EOS, id) {
			c.EOS = append(c.EOS, id)
		}
	}
	return nil
}

// MaxContext is the longest sequence that the forward pass computes as the model was trained to: the sliding window is
// not implemented, so a sequence must fit into it.
func (c *Config) MaxContext() int {
	if c.SlidingWindow > 0 {
		return min(c.SlidingWindow, c.MaxPositionEmbeddings)
	}
	return c.MaxPositionEmbeddings
}

// CheckLength refuses a sequence of n tokens that exceeds MaxContext, and says which limit it is.
func (c *Config) CheckLength(n int) error {
	if n <= c.MaxContext() {
		return nil
	}
	if c.SlidingWindow > 0 && c.SlidingWindow <= c.MaxPositionEmbeddings {
		return fmt.Errorf("modelfile: a sequence of %d tokens exceeds the model's sliding window of %d, beyond which its attention is not supported", n, c.SlidingWindow)
	}
	return fmt.Errorf("modelfile: a sequence of %d tokens exceeds the model's max_position_embeddings of %d", n, c.MaxPositionEmbeddings)
}

// maxSize bounds every size of a config, so that products of two fit into an int64.
const maxSize = 1<<31 - 1

// object reads typed values out of a JSON object and keeps the first error.
type object struct {
	file   string
	values map[string]json.RawMessage
	err    error
}

func parseObject(file string, data []byte) (*object, error) {
	o := &object{file: file}
	if err := json.Unmarshal(data, &o.values); err != nil {
		return nil, fmt.Errorf("modelfile: %s: not a JSON object: %w", file, err)
	}
	if o.values == nil {
		return nil, fmt.Errorf("modelfile: %s: is null, expected a JSON object", file)
	}
	return o, nil
}

func (o *object) fail(key, format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("modelfile: %s: %s %s", o.file, key, fmt.Sprintf(format, args...))
	}
}

// isNull: the key is there and null.
func (o *object) isNull(key string) bool {
	v, ok := o.values[key]
	return ok && bytes.Equal(bytes.TrimSpace(v), []byte("null"))
}

// has: the key is there and not null.
func (o *object) has(key string) bool {
	_, ok := o.values[key]
	return ok && !o.isNull(key)
}

// decode leaves *to alone when the key is missing or null.
func (o *object) decode(key string, to any, expected string) {
	if !o.has(key) {
		return
	}
	if err := json.Unmarshal(o.values[key], to); err != nil {
		o.fail(key, "is %s, expected %s", brief(o.values[key]), expected)
	}
}

func (o *object) text(key, otherwise string) string {
	o.decode(key, &otherwise, "a string")
	return otherwise
}

func (o *object) boolean(key string, otherwise bool) bool {
	o.decode(key, &otherwise, "true or false")
	return otherwise
}

func (o *object) number(key string, otherwise float64) float64 {
	o.decode(key, &otherwise, "a number")
	return otherwise
}

// size reads a positive integer; otherwise 0 means that the key is required.
func (o *object) size(key string, otherwise int) int {
	v := o.integer(key, otherwise)
	switch {
	case !o.has(key) && otherwise <= 0:
		o.fail(key, "is missing")
	case v <= 0 || v > maxSize:
		o.fail(key, "is %d, expected a positive integer of at most %d", v, maxSize)
	}
	return v
}

func (o *object) nonNegative(key string, otherwise int) int {
	v := o.integer(key, otherwise)
	if v < 0 {
		o.fail(key, "is %d, expected 0 or more", v)
	}
	return v
}

func (o *object) integer(key string, otherwise int) int {
	o.decode(key, &otherwise, "an integer")
	return otherwise
}

// optionalID reads a token id; -1 stands for none, also when the key is null.
func (o *object) optionalID(key string, otherwise int) int {
	if o.isNull(key) {
		return -1
	}
	if ids := o.ids(key, otherwise); len(ids) > 0 {
		return ids[0]
	}
	return -1
}

// ids reads a token id or a list of them; none for a missing key with otherwise -1.
func (o *object) ids(key string, otherwise int) []int {
	if _, ok := o.values[key]; !ok && otherwise >= 0 {
		return []int{otherwise}
	}
	if !o.has(key) {
		return nil
	}
	var list []int
	if json.Unmarshal(o.values[key], &list) != nil {
		one := 0
		o.decode(key, &one, "a token id or a list of them")
		list = []int{one}
	}
	list = slices.DeleteFunc(list, func(id int) bool { return id == -1 }) // -1 is how some writers say none
	for _, id := range list {
		if id < 0 {
			o.fail(key, "has the token id %d", id)
		}
	}
	return list
}

// brief shortens a JSON value for an error message.
func brief(v []byte) string {
	if len(v) > 40 {
		return string(bytes.ToValidUTF8(v[:40], nil)) + "…"
	}
	return string(v)
}
