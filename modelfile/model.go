package modelfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Model is an opened model: a Hugging Face directory or a GGUF file. Weights, configuration, tokenizer and template are
// each optional, so that a folder with a tokenizer alone opens too; what is missing is reported when it is asked for.
type Model struct {
	Path   string // folder or .gguf file
	Format string // safetensors, gguf, or "" for a folder without weights

	dir   string // "" for a GGUF file
	hub   string // the hub id that the folder was found by in the hub's cache; "" for others
	gguf  *ggufFile
	store tensorStore // nil: no weights
}

// Open opens a folder, a .gguf file, a folder with exactly one .gguf file, or a hub id (ORG/NAME or ORG/NAME@REVISION)
// that is already on this machine. The headers of the weights are checked here.
func Open(path string) (*Model, error) {
	where, pulled, err := resolve(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(where)
	if err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	if info.IsDir() {
		hub := ""
		if pulled {
			hub = path
		}
		return openDir(where, hub)
	}
	g, err := openGGUF(where)
	if err != nil {
		if strings.HasSuffix(where, ".safetensors") {
			return nil, fmt.Errorf("modelfile: %s is a safetensors file; open the folder that also holds its config.json", where)
		}
		return nil, err
	}
	return &Model{Path: where, Format: "gguf", gguf: g, store: newGGUFModel(g)}, nil
}

// OpenSafetensors opens one safetensors file that need not be a model, such as an optimizer's state. Only tensors can be
// read from it.
func OpenSafetensors(path string) (*Model, error) {
	s, err := openSafetensors(path)
	if err != nil {
		return nil, err
	}
	return &Model{Path: path, Format: "safetensors", dir: filepath.Dir(path), store: s}, nil
}

func openDir(dir, hub string) (*Model, error) {
	m := &Model{Path: dir, dir: dir, hub: hub}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case exists("model.safetensors"):
		s, err := openSafetensors(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			return nil, err
		}
		m.Format, m.store = "safetensors", s
	case exists("model.safetensors.index.json"):
		s, err := openShards(filepath.Join(dir, "model.safetensors.index.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w%s", err, m.incomplete())
		}
		if err != nil {
			return nil, err
		}
		m.Format, m.store = "safetensors", s
	default:
		found, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.gguf"))
		if err != nil {
			return nil, fmt.Errorf("modelfile: %w", err)
		}
		switch {
		case len(found) == 1:
			return Open(found[0])
		case !exists("config.json") && !exists("tokenizer.json"):
			err := fmt.Errorf("modelfile: %s holds no config.json, no tokenizer.json and %d .gguf files; expected a model folder or name one file", dir, len(found))
			if len(found) == 0 {
				err = fmt.Errorf("%w%s", err, m.incomplete())
			}
			return nil, err
		}
	}
	return m, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// Close unmaps the files; what Tensor returned must not be used any more. A second call does nothing.
func (m *Model) Close() error {
	s := m.store
	m.store = nil
	if s == nil {
		return nil
	}
	if err := s.close(); err != nil {
		return fmt.Errorf("modelfile: closing %s: %w", m.Path, err)
	}
	return nil
}

// Config parses the configuration; an unsupported architecture is refused by name.
func (m *Model) Config() (*Config, error) {
	if m.gguf != nil {
		return m.gguf.config()
	}
	config, err := m.read("config.json")
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, fmt.Errorf("modelfile: %s has no config.json%s", m.Path, m.incomplete())
	}
	generation, err := m.read("generation_config.json")
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(config, generation)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, m.Path)
	}
	return c, nil
}

// Names lists the tensors in the order of the file, as transformers names them; none where there are no weights.
func (m *Model) Names() []string {
	if m.store == nil {
		return nil
	}
	return slices.Clone(m.store.names())
}

// Info describes a tensor without touching its data; false when there is none of that name.
func (m *Model) Info(name string) (TensorInfo, bool) {
	if m.store == nil {
		return TensorInfo{}, false
	}
	return m.store.info(name)
}

// Tensor returns a tensor in transformers' layout, of type F32, F16 or BF16 where it is a weight.
func (m *Model) Tensor(name string) (Tensor, error) {
	if m.store == nil {
		return Tensor{}, fmt.Errorf("modelfile: %s holds no weights (model.safetensors, model.safetensors.index.json or a .gguf file)%s", m.Path, m.withoutWeights())
	}
	return m.store.tensor(name)
}

// withoutWeights says what to do about a model that has no weights.
func (m *Model) withoutWeights() string {
	if _, err := os.Stat(filepath.Join(m.dir, "pytorch_model.bin")); m.dir != "" && err == nil {
		return "; pytorch_model.bin is not read, because unpickling runs code: convert it to safetensors with transformers' save_pretrained"
	}
	return m.incomplete()
}

// incomplete says what to do about a missing file; "" where the folder is not the hub's cache.
func (m *Model) incomplete() string {
	if m.hub == "" {
		return ""
	}
	return fmt.Sprintf("; %s is not complete in the hub's cache: run `agentfly model pull %s`", m.hub, m.hub)
}

// HasWeights tells whether any tensor is there.
func (m *Model) HasWeights() bool { return m.store != nil && len(m.store.names()) > 0 }

// read returns a file of the folder, nil when it does not exist.
func (m *Model) read(name string) ([]byte, error) {
	if m.dir == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	return data, nil
}

// File returns a file of the folder byte for byte (tokenizer.json, tokenizer_config.json, …); nil without an error when
// there is none, as always for a GGUF.
func (m *Model) File(name string) ([]byte, error) {
	if name != filepath.Base(name) {
		return nil, fmt.Errorf("modelfile: %q is not the name of a file in the model's folder", name)
	}
	return m.read(name)
}

// ConfigJSON is the config.json to save beside the weights: the original's keys where there was one, with dtype set;
// otherwise one that transformers reads as this model.
func (c *Config) ConfigJSON(dtype DType) (map[string]any, error) {
	name, ok := map[DType]string{F32: "float32", F16: "float16", BF16: "bfloat16"}[dtype]
	if !ok {
		return nil, fmt.Errorf("modelfile: cannot save weights as %q; use F32, F16 or BF16", dtype)
	}
	out := map[string]any{}
	if c.raw != nil {
		for key, value := range c.raw {
			out[key] = value
		}
		out["model_type"], out["architectures"] = c.ModelType, []string{c.Architecture}
		delete(out, "torch_dtype") // the old name of dtype
		out["dtype"] = name
		return out, nil
	}
	for key, value := range map[string]any{
		"architectures": []string{c.Architecture}, "model_type": c.ModelType, "dtype": name,
		"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize,
		"num_hidden_layers": c.NumLayers, "num_attention_heads": c.NumHeads, "num_key_value_heads": c.NumKVHeads,
		"head_dim": c.HeadDim, "rms_norm_eps": c.RMSNormEps, "hidden_act": "silu", "max_position_embeddings": c.MaxPositionEmbeddings,
		"tie_word_embeddings": c.TieWordEmbeddings, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": true,
		"rope_theta": c.Rope.Theta, "rope_scaling": c.Rope.scalingJSON(),
		"bos_token_id": idJSON(c.BOS), "pad_token_id": idJSON(c.PAD), "eos_token_id": idsJSON(c.EOS),
	} {
		out[key] = value
	}
	switch c.ModelType {
	case "llama":
		out["attention_bias"], out["mlp_bias"] = c.QKVBias, c.MLPBias
	case "mistral":
		out["sliding_window"] = nil
		if c.SlidingWindow > 0 {
			out["sliding_window"] = c.SlidingWindow
		}
	case "qwen2", "qwen3":
		out["use_sliding_window"] = c.SlidingWindow > 0
		if c.SlidingWindow > 0 {
			out["sliding_window"], out["max_window_layers"] = c.SlidingWindow, 0
		}
		if c.ModelType == "qwen3" {
			out["attention_bias"] = c.QKVBias
		}
	}
	return out, nil
}

// GenerationJSON is a generation_config.json with the special ids.
func (c *Config) GenerationJSON() map[string]any {
	return map[string]any{"bos_token_id": idJSON(c.BOS), "pad_token_id": idJSON(c.PAD), "eos_token_id": idsJSON(c.EOS)}
}

func idJSON(id int) any {
	if id < 0 {
		return nil
	}
	return id
}

func idsJSON(ids []int) any {
	switch len(ids) {
	case 0:
		return nil
	case 1:
		return ids[0]
	}
	return ids
}

// scalingJSON is rope_scaling; transformers of every version reads it, and null where there is no scaling.
func (r Rope) scalingJSON() any {
	out := map[string]any{"rope_type": r.Type, "factor": r.Factor}
	switch r.Type {
	case "default":
		return nil
	case "llama3":
		out["low_freq_factor"], out["high_freq_factor"] = r.LowFreqFactor, r.HighFreqFactor
		out["original_max_position_embeddings"] = int(r.OriginalMaxPosition)
	case "yarn":
		out["beta_fast"], out["beta_slow"], out["truncate"] = r.BetaFast, r.BetaSlow, r.Truncate
		out["original_max_position_embeddings"] = int(r.OriginalMaxPosition)
		for key, v := range map[string]float64{"attention_factor": r.AttentionFactor, "mscale": r.MScale, "mscale_all_dim": r.MScaleAllDim} {
			if v != 0 {
				out[key] = v
			}
		}
	}
	return out
}

// jsonText decodes a JSON string or an AddedToken object with its content; "" for anything else.
func jsonText(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	var token struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(v, &token) == nil {
		return token.Content
	}
	return ""
}
