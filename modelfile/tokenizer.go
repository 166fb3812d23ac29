package modelfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Vocabulary is the tokenizer that a GGUF file carries (its tokenizer.ggml.* keys), uninterpreted.
type Vocabulary struct {
	Model  string    // gpt2 (byte-level BPE), llama (SentencePiece), …
	Pre    string    // pre-tokenizer kind: smollm, gpt-2, qwen2, llama-bpe, …
	Tokens []string  // by id
	Types  []int     // by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; nil when absent
	Merges []string  // "left right", best first
	Scores []float32 // by id; nil when absent

	BOS, EOS, UNK, PAD, EOT int // ids, -1 where there is none

	AddBOS, AddEOS, AddSpacePrefix *bool // nil where the file does not say
}

// TokenizerSource is what a tokenizer is made from: exactly one of JSON and GGUF is set.
type TokenizerSource struct {
	JSON   []byte // tokenizer.json
	Config []byte // tokenizer_config.json; may be nil
	GGUF   *Vocabulary
}

// Tokenizer returns the tokenizer's files or vocabulary.
func (m *Model) Tokenizer() (TokenizerSource, error) {
	if m.gguf != nil {
		v, err := m.gguf.vocabulary()
		return TokenizerSource{GGUF: v}, err
	}
	var s TokenizerSource
	var err error
	if s.JSON, err = m.read("tokenizer.json"); err != nil {
		return s, err
	}
	if s.JSON == nil {
		hint := m.incomplete()
		for _, old := range []string{"tokenizer.model", "vocab.json"} {
			if _, err := os.Stat(filepath.Join(m.dir, old)); err == nil {
				hint = fmt.Sprintf("; it has %s, convert it with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)", old)
			}
		}
		return s, fmt.Errorf("modelfile: %s has no tokenizer.json%s", m.Path, hint)
	}
	s.Config, err = m.read("tokenizer_config.json")
	return s, err
}

// vocabulary reads tokenizer.ggml.* and checks that the lists fit together.
func (g *ggufFile) vocabulary() (*Vocabulary, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("modelfile: %s: tokenizer.ggml.%s", g.file, fmt.Sprintf(format, args...))
	}
	v := &Vocabulary{Model: g.text("tokenizer.ggml.model"), Pre: g.text("tokenizer.ggml.pre")}
	list := func(key string) (ggufValue, error) {
		x, ok := g.values["tokenizer.ggml."+key]
		if ok && !x.array {
			return x, bad("%s is not a list", key)
		}
		return x, nil
	}
	tokens, err := list("tokens")
	if err != nil {
		return nil, err
	}
	if v.Tokens = tokens.strings; len(v.Tokens) == 0 {
		return nil, bad("tokens is missing or not a list of strings: the file has no vocabulary")
	}
	merges, err := list("merges")
	if err != nil {
		return nil, err
	}
	v.Merges = merges.strings
	types, err := list("token_type")
	if err != nil {
		return nil, err
	}
	for i := range types.count {
		n, ok := types.element(i)
		if !ok || types.count != len(v.Tokens) || n < 0 || n > 255 {
			return nil, bad("token_type has %d entries of kind %d for %d tokens", types.count, types.kind, len(v.Tokens))
		}
		v.Types = append(v.Types, int(n))
	}
	scores, err := list("scores")
	if err != nil {
		return nil, err
	}
	for i := range scores.count {
		f, ok := scores.float(i)
		if !ok || scores.count != len(v.Tokens) {
			return nil, bad("scores has %d entries of kind %d for %d tokens", scores.count, scores.kind, len(v.Tokens))
		}
		v.Scores = append(v.Scores, float32(f))
	}
	for key, to := range map[string]*int{
		"bos_token_id": &v.BOS, "eos_token_id": &v.EOS, "unknown_token_id": &v.UNK, "padding_token_id": &v.PAD, "eot_token_id": &v.EOT,
	} {
		n := g.tokenID(key)
		if n >= int64(len(v.Tokens)) {
			return nil, bad("%s is %d, but there are %d tokens", key, n, len(v.Tokens))
		}
		*to = int(n)
	}
	for key, to := range map[string]**bool{"add_bos_token": &v.AddBOS, "add_eos_token": &v.AddEOS, "add_space_prefix": &v.AddSpacePrefix} {
		if x, ok := g.values["tokenizer.ggml."+key]; ok && x.kind == ggufBool && !x.array {
			b := x.raw[0] != 0
			*to = &b
		}
	}
	return v, nil
}

// ChatTemplates returns the model's Jinja templates by name; the main one is "default". Empty when there is none.
func (m *Model) ChatTemplates() (map[string]string, error) {
	out := map[string]string{}
	if m.gguf != nil {
		for key, v := range m.gguf.values {
			name, ok := strings.CutPrefix(key, "tokenizer.chat_template")
			if !ok || v.kind != ggufString || v.array {
				continue
			}
			if name = strings.TrimPrefix(name, "."); name == "" {
				name = "default"
			}
			out[name] = v.strings[0]
		}
		return out, nil
	}
	config, err := m.read("tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	if config != nil {
		if err := templatesOf(config, out); err != nil {
			return nil, fmt.Errorf("modelfile: %s: %w", filepath.Join(m.dir, "tokenizer_config.json"), err)
		}
	}
	file, err := m.read("chat_template.jinja") // transformers prefers the file
	if err != nil {
		return nil, err
	}
	if file != nil {
		out["default"] = string(file)
	}
	more, err := filepath.Glob(filepath.Join(escapeGlob(m.dir), "additional_chat_templates", "*.jinja"))
	if err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	for _, path := range more {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("modelfile: %w", err)
		}
		out[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(text)
	}
	return out, nil
}

// templatesOf reads chat_template of tokenizer_config.json: a string, or a list of named ones.
func templatesOf(config []byte, out map[string]string) error {
	var c struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	if len(c.Template) == 0 || string(c.Template) == "null" {
		return nil
	}
	var one string
	if json.Unmarshal(c.Template, &one) == nil {
		out["default"] = one
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(c.Template, &named); err != nil {
		return fmt.Errorf("chat_template is neither a string nor a list of named ones: %w", err)
	}
	for _, n := range named {
		out[n.Name] = n.Template
	}
	return nil
}

// SpecialTokens maps what templates and users call special tokens (bos_token, eos_token, unk_token, pad_token, …) to
// their text. Those that the model does not have are left out.
func (m *Model) SpecialTokens() (map[string]string, error) {
	out := map[string]string{}
	if m.gguf != nil {
		v, err := m.gguf.vocabulary()
		if err != nil {
			return nil, err
		}
		for name, id := range map[string]int{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.UNK, "pad_token": v.PAD} {
			if id >= 0 {
				out[name] = v.Tokens[id]
			}
		}
		return out, nil
	}
	for _, file := range []string{"special_tokens_map.json", "tokenizer_config.json"} { // the latter wins, as in transformers
		data, err := m.read(file)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		var values map[string]json.RawMessage
		if err := json.Unmarshal(data, &values); err != nil {
			return nil, fmt.Errorf("modelfile: %s: %w", filepath.Join(m.dir, file), err)
		}
		for key, value := range values {
			if strings.HasSuffix(key, "_token") && !strings.HasPrefix(key, "add_") {
				if text := jsonText(value); text != "" {
					out[key] = text
				}
			}
		}
	}
	return out, nil
}
