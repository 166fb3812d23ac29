package modelfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// ggufModel shows a GGUF file's tensors under transformers' names and in transformers' layout.
type ggufModel struct {
	g        *ggufFile
	order    []string          // transformers' names
	original map[string]string // transformers' name -> GGUF's
	permuted bool              // llama: the rows of q and k are interleaved
	heads    int
	kvHeads  int
}

// ggufNames: what a part of a block is called in GGUF and in transformers.
var ggufNames = map[string]string{
	"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
	"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
	"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

// ggufRopeFactors is the tensor in which llama.cpp stores the result of llama3 scaling: [headDim/2] divisors.
const ggufRopeFactors = "rope_freqs.weight"

var ggufBlock = regexp.MustCompile(`^blk\.(0|[1-9][0-9]{0,4})\.([a-z_]+)\.(weight|bias)$`)

// hfName translates a tensor's name; a name that is not known stays, and the loader calls it unexpected.
func hfName(name string) string {
	switch name {
	case "token_embd.weight":
		return "model.embed_tokens.weight"
	case "output_norm.weight":
		return "model.norm.weight"
	case "output.weight":
		return "lm_head.weight"
	}
	if m := ggufBlock.FindStringSubmatch(name); m != nil {
		if part, ok := ggufNames[m[2]]; ok {
			return "model.layers." + m[1] + "." + part + "." + m[3]
		}
	}
	return name
}

func newGGUFModel(g *ggufFile) *ggufModel {
	m := &ggufModel{g: g, original: map[string]string{}}
	for _, name := range g.order {
		if name == ggufRopeFactors { // part of the configuration
			continue
		}
		hf := hfName(name)
		m.order = append(m.order, hf)
		m.original[hf] = name
	}
	architecture := g.text("general.architecture")
	m.permuted = architecture == "llama"
	m.heads = int(g.integerOr(architecture+".attention.head_count", 0))
	m.kvHeads = int(g.integerOr(architecture+".attention.head_count_kv", int64(m.heads)))
	return m
}

func (m *ggufModel) names() []string { return m.order }

func (m *ggufModel) info(name string) (TensorInfo, bool) {
	t, ok := m.g.tensors[m.original[name]]
	if !ok {
		return TensorInfo{}, false
	}
	q := ggufTypes[t.kind]
	dtype := F32
	if q.name == "F16" || q.name == "BF16" {
		dtype = DType(q.name)
	}
	return TensorInfo{Name: name, DType: dtype, Shape: slices.Clone(t.shape), Type: q.name, File: m.g.file}, true
}

// tensor dequantises what is quantised and puts the rows of q and k into transformers' order.
func (m *ggufModel) tensor(name string) (Tensor, error) {
	info, ok := m.info(name)
	if !ok {
		return Tensor{}, fmt.Errorf("modelfile: %s: there is no tensor %s", m.g.file, name)
	}
	t := m.g.tensors[m.original[name]]
	q := ggufTypes[t.kind]
	data := t.data
	if heads := m.rotaryHeads(name); heads > 0 {
		var err error
		if data, err = unpermute(data, info.Shape, heads); err != nil {
			return Tensor{}, fmt.Errorf("modelfile: %s: %s %w", m.g.file, m.original[name], err)
		}
	}
	if q.name != string(info.DType) {
		out := make([]byte, 4*info.Elements())
		if err := q.dequantiseAll(data, out); err != nil {
			return Tensor{}, fmt.Errorf("modelfile: %s: %s: %w", m.g.file, m.original[name], err)
		}
		data = out
	}
	return Tensor{TensorInfo: info, Data: data}, nil
}

// rotaryHeads is the number of heads in a permuted tensor, 0 for any other.
func (m *ggufModel) rotaryHeads(name string) int {
	switch {
	case !m.permuted:
		return 0
	case strings.Contains(name, ".self_attn.q_proj."):
		return m.heads
	case strings.Contains(name, ".self_attn.k_proj."):
		return m.kvHeads
	}
	return 0
}

// unpermute undoes what llama.cpp's converter does to q and k of the llama architecture. Within a head of d rows, GGUF
// keeps the two dimensions of a rotated pair next to each other (2i, 2i+1), transformers half a head apart (i, i+d/2).
// Rows are moved as a whole, so it works on quantised data too.
func unpermute(data []byte, shape []int, heads int) ([]byte, error) {
	rows := shape[0]
	if heads <= 0 || rows%(2*heads) != 0 || len(data)%rows != 0 {
		return nil, fmt.Errorf("has %d rows, which are not %d heads of an even size", rows, heads)
	}
	out := make([]byte, len(data))
	width, dim := len(data)/rows, rows/heads
	for row := range rows {
		head, within := row/dim, row%dim
		from := head*dim + 2*(within%(dim/2)) + within/(dim/2)
		copy(out[row*width:(row+1)*width], data[from*width:])
	}
	return out, nil
}

func (m *ggufModel) close() error { return m.g.unmap() }

func (g *ggufFile) text(key string) string {
	if v, ok := g.values[key]; ok && v.kind == ggufString && !v.array {
		return v.strings[0]
	}
	return ""
}

func (g *ggufFile) integerOr(key string, otherwise int64) int64 {
	if v, ok := g.values[key]; ok {
		if n, ok := v.integer(); ok && n >= 0 && n <= maxSize {
			return n
		}
		return 0 // present, but not a count: refused wherever 0 is
	}
	return otherwise
}

// tokenID is the id of a special token; -1: the file names none, or says by -1 or the largest u32, as some writers do, that there is none.
func (g *ggufFile) tokenID(key string) int64 {
	if v, ok := g.values["tokenizer.ggml."+key]; ok {
		if n, ok := v.integer(); ok && n >= 0 && n != 1<<32-1 {
			return n
		}
	}
	return -1
}

// floatOr is a number; of an integer kind too, which some writers give a whole one.
func (g *ggufFile) floatOr(key string, otherwise float64) float64 {
	v, ok := g.values[key]
	if !ok {
		return otherwise
	}
	if n, ok := v.integer(); ok {
		return float64(n)
	}
	if !v.array {
		if f, ok := v.float(0); ok {
			return f
		}
	}
	return 0 // present, but not a number: refused wherever 0 is
}

func (g *ggufFile) has(tensor string) bool {
	_, ok := g.tensors[tensor]
	return ok
}

// config builds a Config from the metadata; which biases there are is read from the tensors.
func (g *ggufFile) config() (*Config, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("modelfile: %s: %s", g.file, fmt.Sprintf(format, args...))
	}
	a := g.text("general.architecture")
	if a != "llama" && a != "qwen2" && a != "qwen3" {
		return nil, bad("general.architecture is %q, which is not supported; supported are llama, qwen2, qwen3", a)
	}
	if n := g.integerOr(a+".expert_count", 0); n > 0 {
		return nil, bad("it is a mixture of %d experts, which is not supported", n)
	}
	c := &Config{ModelType: a, Architecture: architectures[a], BOS: -1, PAD: -1, QKNorm: a == "qwen3"}
	var missing string
	size := func(key string, otherwise int64) int {
		n := g.integerOr(a+"."+key, otherwise)
		if n == 0 && missing == "" {
			missing = a + "." + key
		}
		return int(n)
	}
	c.NumLayers, c.HiddenSize = size("block_count", 0), size("embedding_length", 0)
	c.IntermediateSize, c.MaxPositionEmbeddings = size("feed_forward_length", 0), size("context_length", 0)
	c.NumHeads = size("attention.head_count", 0)
	c.NumKVHeads = size("attention.head_count_kv", int64(c.NumHeads))
	if missing != "" {
		return nil, bad("%s is missing or not a positive integer", missing)
	}
	c.HeadDim = size("attention.key_length", g.integerOr(a+".rope.dimension_count", int64(c.HiddenSize/c.NumHeads)))
	if v := size("attention.value_length", int64(c.HeadDim)); v != c.HeadDim {
		return nil, bad("%s.attention.value_length is %d, key_length %d; they must be equal", a, v, c.HeadDim)
	}
	if d := size("rope.dimension_count", int64(c.HeadDim)); d != c.HeadDim {
		return nil, bad("%s.rope.dimension_count is %d, but heads have %d dimensions; partial rotation is not supported", a, d, c.HeadDim)
	}
	if c.HeadDim == 0 || missing != "" {
		return nil, bad("the head dimension is missing")
	}
	c.RMSNormEps = shortest(g.floatOr(a+".attention.layer_norm_rms_epsilon", 0))
	c.VocabSize = g.vocabSize(a)
	c.TieWordEmbeddings = !g.has("output.weight")
	c.QKVBias, c.OBias, c.MLPBias = g.has("blk.0.attn_q.bias"), g.has("blk.0.attn_output.bias"), g.has("blk.0.ffn_gate.bias")
	if g.has("blk.0.ffn_gate_inp.weight") {
		return nil, bad("it is a mixture of experts, which is not supported")
	}
	if w := size("attention.sliding_window", -1); w > 0 && a == "llama" {
		c.ModelType, c.Architecture, c.SlidingWindow = "mistral", architectures["mistral"], w
	} else if w > 0 {
		c.SlidingWindow = w
	}
	fits := map[string]bool{ // the biases that transformers' class of that name can have
		"llama": c.QKVBias == c.OBias, "mistral": !c.QKVBias && !c.OBias && !c.MLPBias,
		"qwen2": c.QKVBias && !c.OBias && !c.MLPBias, "qwen3": c.QKVBias == c.OBias && !c.MLPBias,
	}
	if g.has("token_embd.weight") && !fits[c.ModelType] { // a vocabulary alone has no biases to look at
		return nil, bad("biases on q/k/v %v, on the attention output %v, on the feed-forward %v are not what %s has", c.QKVBias, c.OBias, c.MLPBias, c.Architecture)
	}
	c.specialIDs(g)
	var err error
	if c.Rope, err = g.rope(a, c); err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, g.file)
	}
	return c, nil
}

func (g *ggufFile) vocabSize(a string) int {
	if t, ok := g.tensors["token_embd.weight"]; ok && len(t.shape) == 2 {
		return t.shape[0]
	}
	return int(g.integerOr(a+".vocab_size", int64(len(g.values["tokenizer.ggml.tokens"].strings))))
}

// shortest turns a float32 that was widened (9.999999747378752e-06) into the decimal that was meant (1e-05).
func shortest(f float64) float64 {
	var v float64
	fmt.Sscanf(fmt.Sprint(float32(f)), "%g", &v)
	return v
}

// specialIDs reads the ids of the tokens that begin, end and pad, and those that end a turn.
func (c *Config) specialIDs(g *ggufFile) {
	id := func(key string) int {
		if n := g.tokenID(key); n < int64(c.VocabSize) {
			return int(n)
		}
		return -1
	}
	c.BOS, c.PAD = id("bos_token_id"), id("padding_token_id")
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if n := id(key); n >= 0 && !slices.Contains(c.EOS, n) {
			c.EOS = append(c.EOS, n)
		}
	}
}

func (g *ggufFile) rope(a string, c *Config) (Rope, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("modelfile: %s: %s", g.file, fmt.Sprintf(format, args...))
	}
	r := Rope{Type: "default", Theta: shortest(g.floatOr(a+".rope.freq_base", 10000))}
	scaling := g.text(a + ".rope.scaling.type")
	r.Factor = shortest(g.floatOr(a+".rope.scaling.factor", g.floatOr(a+".rope.scale_linear", 0)))
	if scaling == "" && r.Factor != 0 && r.Factor != 1 {
		scaling = "linear" // as llama.cpp takes it
	}
	switch scaling {
	case "", "none":
		r.Factor = 0
	case "linear":
		r.Type = "linear"
	case "yarn":
		r.Type, r.BetaFast, r.BetaSlow, r.Truncate = "yarn", 32, 1, true
		r.OriginalMaxPosition = float64(g.integerOr(a+".rope.scaling.original_context_length", int64(c.MaxPositionEmbeddings)))
		for key := range g.values {
			switch key {
			case a + ".rope.scaling.attn_factor", a + ".rope.scaling.yarn_log_multiplier", a + ".rope.scaling.yarn_ext_factor",
				a + ".rope.scaling.yarn_attn_factor", a + ".rope.scaling.yarn_beta_fast", a + ".rope.scaling.yarn_beta_slow":
				return r, bad("%s is not supported", key)
			}
		}
	default:
		return r, bad("%s.rope.scaling.type is %q; none, linear and yarn are supported", a, scaling)
	}
	factors, ok := g.tensors[ggufRopeFactors]
	if !ok {
		return r, nil
	}
	if r.Type != "default" || ggufTypes[factors.kind].name != "F32" || len(factors.shape) != 1 || factors.shape[0] != c.HeadDim/2 {
		return r, bad("%s with scaling %q, type %s and shape %v is not supported", ggufRopeFactors, r.Type, ggufTypes[factors.kind].name, factors.shape)
	}
	values := make([]float32, c.HeadDim/2)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(factors.data[4*i:]))
	}
	return llama3FromFactors(r, values, c.HeadDim, bad)
}

// llama3FromFactors finds the llama3 parameters that give these divisors: the factor is the largest one, the others are
// those of every released model (low 1, high 4, original context 8192). Anything else is refused.
func llama3FromFactors(r Rope, values []float32, headDim int, bad func(string, ...any) error) (Rope, error) {
	plain := r.InvFreq(headDim)
	largest := slices.Max(values)
	if largest == 1 && slices.Min(values) == 1 {
		return r, nil
	}
	r.Type, r.Factor, r.LowFreqFactor, r.HighFreqFactor, r.OriginalMaxPosition = "llama3", float64(largest), 1, 4, 8192
	if err := r.validate(); err != nil {
		return r, bad("%s: %v", ggufRopeFactors, err)
	}
	for i, v := range r.InvFreq(headDim) {
		if want := plain[i] / values[i]; !(math.Abs(float64(v-want)) <= 1e-5*math.Abs(float64(want))) {
			return r, bad("%s does not hold llama3 scaling with low_freq_factor 1, high_freq_factor 4 and original context 8192 (element %d); use the safetensors model", ggufRopeFactors, i)
		}
	}
	return r, nil
}
