package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/masks/template"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/modelfile"
)

// Text is the part of a model that turns messages into token ids and back.
type Text struct {
	Tokenizer     *tokenizer.Tokenizer
	ChatTemplate  string            // Jinja source; "" when the model has none
	SpecialTokens map[string]string // bos_token, eos_token, … as the template knows them
	StopIDs       []int32           // ids that end a turn, ascending; may be empty
}

// LoadText opens the tokenizer and the template of a folder, a .gguf file or a hub id. No weights are needed, nor
// config.json: without it the stop id is eos_token alone.
func LoadText(path string) (*Text, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return loadText(m)
}

func loadText(m *modelfile.Model) (*Text, error) {
	source, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	t := &Text{}
	if source.GGUF != nil {
		t.Tokenizer, err = tokenizer.FromVocabulary(vocabulary(source.GGUF))
	} else {
		t.Tokenizer, err = tokenizer.FromJSON(source.JSON)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, m.Path)
	}
	if t.ChatTemplate, err = m.ChatTemplate(); err != nil {
		return nil, err
	}
	if t.SpecialTokens, err = m.SpecialTokens(); err != nil {
		return nil, err
	}
	if config, err := m.Config(); err == nil { // a tokenizer alone has none, or one of an architecture that we do not run
		for _, id := range config.EOS {
			t.StopIDs = append(t.StopIDs, int32(id))
		}
	}
	if text, ok := t.SpecialTokens["eos_token"]; ok {
		if id, ok := t.Tokenizer.ID(text); ok && !slices.Contains(t.StopIDs, id) {
			t.StopIDs = append(t.StopIDs, id)
		}
	}
	slices.Sort(t.StopIDs)
	return t, nil
}

// Template compiles ChatTemplate, with the variables that transformers gives it. A construct that cannot be rendered
// exactly is refused by name.
func (t *Text) Template() (*template.Template, error) {
	if t.ChatTemplate == "" {
		return nil, errors.New("policy: the model has no chat template; give one with model.chat_template")
	}
	o := template.Options{BOSToken: t.SpecialTokens["bos_token"], EOSToken: t.SpecialTokens["eos_token"], Specials: map[string]string{}}
	for name, text := range t.SpecialTokens {
		if name != "bos_token" && name != "eos_token" {
			o.Specials[name] = text
		}
	}
	compiled, err := template.Compile(t.ChatTemplate, o)
	if err != nil {
		return nil, fmt.Errorf("policy: chat template: %w", err)
	}
	return compiled, nil
}

// vocabulary hands a GGUF's tokenizer over. What the file leaves out is what llama.cpp assumes.
func vocabulary(v *modelfile.Vocabulary) tokenizer.Vocabulary {
	out := tokenizer.Vocabulary{
		Model: v.Model, Pre: v.Pre, Tokens: v.Tokens, Merges: v.Merges, Scores: v.Scores,
		BOS: int32(v.BOS), EOS: int32(v.EOS), UNK: int32(v.UNK), PAD: int32(v.PAD), AddSpacePrefix: v.AddSpacePrefix,
		AddBOS: v.Model == "llama" || slices.Contains([]string{"llama-bpe", "llama3", "llama-v3"}, v.Pre),
	}
	if v.AddBOS != nil {
		out.AddBOS = *v.AddBOS
	}
	for _, kind := range v.Types {
		out.Types = append(out.Types, int32(kind))
	}
	return out
}
