package policy

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/internal/tensors"
	"github.com/agentfly/agentfly/modelfile"
)

// maxShard is the size from which on weights are split, in bytes; transformers' default is 50 GB, vLLM reads any.
const maxShard = 5 << 30

// SaveHF writes the model as a Hugging Face folder: config.json, generation_config.json, safetensors of the given type
// (F32, F16 or BF16), the tokenizer and its template. The folder appears complete or not at all; until then the previous
// one stays, so that a full disk or a kill loses nothing. An adapter is merged into the weights.
func (p *Policy) SaveHF(dir string, dtype modelfile.DType) error {
	return folder{p.Config, p.Text, p.kept}.save(dir, dtype, p.sources(dtype, p.Model.Merged))
}

// WriteHF writes the files of SaveHF into a folder that is there, for a caller that makes it appear complete or not at all.
func (p *Policy) WriteHF(dir string, dtype modelfile.DType) error {
	if err := (folder{p.Config, p.Text, p.kept}).write(dir, dtype, p.sources(dtype, p.Model.Merged)); err != nil {
		return fmt.Errorf("policy: writing to %s: %w", dir, err)
	}
	return nil
}

// SaveBase is SaveHF without the adapter.
func (p *Policy) SaveBase(dir string, dtype modelfile.DType) error {
	return folder{p.Config, p.Text, p.kept}.save(dir, dtype, p.sources(dtype, p.Model.Parameter))
}

// folder is a Hugging Face folder without its weights.
type folder struct {
	config *modelfile.Config
	text   *Text
	kept   kept
}

func (f folder) save(dir string, dtype modelfile.DType, weights []modelfile.Source) error {
	err := modelfile.ReplaceDir(dir, func(tmp string) error { return f.write(tmp, dtype, weights) })
	if err != nil {
		return fmt.Errorf("policy: saving to %s: %w", dir, err)
	}
	return nil
}

// write writes the files into a folder that is there.
func (f folder) write(dir string, dtype modelfile.DType, weights []modelfile.Source) error {
	config, err := f.config.ConfigJSON(dtype)
	if err != nil {
		return err
	}
	if err := f.saveText(dir); err != nil {
		return err
	}
	if err := modelfile.WriteJSON(filepath.Join(dir, "config.json"), config); err != nil {
		return err
	}
	return modelfile.WriteSharded(dir, map[string]string{"format": "pt"}, weights, maxShard)
}

// sources reads one parameter at a time, so that a save needs little memory.
func (p *Policy) sources(dtype modelfile.DType, get func(name string) ([]float32, error)) []modelfile.Source {
	var out []modelfile.Source
	for _, info := range p.Model.Parameters() {
		out = append(out, modelfile.Source{Name: info.Name, DType: dtype, Shape: tensors.Dims(info.Shape), Write: func(w io.Writer) error {
			values, err := get(info.Name)
			if err != nil {
				return err
			}
			return tensors.Write(w, values, dtype)
		}})
	}
	return out
}

// saveText writes what is not weights.
func (f folder) saveText(dir string) error {
	write := func(name string, data []byte) error {
		return modelfile.WriteAtomic(filepath.Join(dir, name), func(w io.Writer) error { _, err := w.Write(data); return err })
	}
	for name, data := range f.kept.files {
		if name == "tokenizer_config.json" {
			continue
		}
		if err := write(name, data); err != nil {
			return err
		}
	}
	if f.kept.files["generation_config.json"] == nil {
		if err := modelfile.WriteJSON(filepath.Join(dir, "generation_config.json"), f.config.GenerationJSON()); err != nil {
			return err
		}
	}
	if err := write("tokenizer.json", f.text.Tokenizer.HF()); err != nil {
		return err
	}
	config, err := f.tokenizerConfig()
	if err != nil {
		return err
	}
	if err := modelfile.WriteJSON(filepath.Join(dir, "tokenizer_config.json"), config); err != nil {
		return err
	}
	return f.saveTemplates(dir, write)
}

// saveTemplates writes the files that newer transformers and vLLM read.
func (f folder) saveTemplates(dir string, write func(name string, data []byte) error) error {
	if f.text.ChatTemplate != "" {
		if err := write("chat_template.jinja", []byte(f.text.ChatTemplate)); err != nil {
			return err
		}
	}
	named := map[string]string{}
	maps.Copy(named, f.kept.templates)
	if f.text.ToolUse != "" {
		named[toolUse] = f.text.ToolUse
	}
	if len(named) == 0 {
		return nil
	}
	const more = "additional_chat_templates"
	if err := os.Mkdir(filepath.Join(dir, more), 0o755); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	for name, text := range named {
		if name != filepath.Base(name) {
			return fmt.Errorf("policy: the chat template %q cannot be a file's name", name)
		}
		if err := write(filepath.Join(more, name+".jinja"), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// tokenizerConfig is the original tokenizer_config.json, or one for a tokenizer that came from a GGUF, with the chat
// template that this policy was trained with (older transformers read it there).
func (f folder) tokenizerConfig() (map[string]any, error) {
	out := map[string]any{}
	if data := f.kept.files["tokenizer_config.json"]; data != nil {
		var original map[string]json.RawMessage
		if err := json.Unmarshal(data, &original); err != nil {
			return nil, fmt.Errorf("policy: tokenizer_config.json: %w", err)
		}
		for key, value := range original {
			out[key] = value
		}
	} else {
		out["tokenizer_class"] = "PreTrainedTokenizerFast" // takes tokenizer.json as it is
		out["clean_up_tokenization_spaces"] = false
		out["model_max_length"] = f.config.MaxPositionEmbeddings
		for name, text := range f.text.SpecialTokens {
			out[name] = text
		}
	}
	delete(out, "chat_template")
	if f.text.ChatTemplate != "" {
		out["chat_template"] = f.text.ChatTemplate
	}
	delete(out, dateKey)
	if f.text.TemplateDate != "" && f.text.TellsDate() {
		out[dateKey] = f.text.TemplateDate
	}
	return out, nil
}
