package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/modelfile"
)

// Text is the part of a model that turns messages into token ids and back.
type Text struct {
	Tokenizer     *tokenizer.Tokenizer
	ChatTemplate  string            // Jinja source; "" when the model has none
	ToolUse       string            // the model's template "tool_use", for conversations with tools; "": ChatTemplate is
	SpecialTokens map[string]string // bos_token, eos_token, … as the template knows them
	StopIDs       []int32           // ids that end a turn, ascending; may be empty
	TemplateDate  string            // YYYY-MM-DD that the template is told in training (strftime_now); "" when the model does not record one
}

// dateKey is where a saved tokenizer_config.json records TemplateDate.
const dateKey = "template_date"

// toolUse is the name under which a model has another template for conversations with tools.
const toolUse = "tool_use"

// TellsDate tells that a template asks for the day.
func (t *Text) TellsDate() bool { return strings.Contains(t.ChatTemplate+t.ToolUse, "strftime_now") }

// Now is the time that the template is told: the beginning of the day set, else of the recorded one, else of 1970-01-01. What it
// is becomes the record.
func (t *Text) Now(set string) (time.Time, error) {
	date := cmp.Or(set, t.TemplateDate, time.Unix(0, 0).UTC().Format(time.DateOnly))
	now, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return now, fmt.Errorf("policy: the template's date is %q; write YYYY-MM-DD", date)
	}
	t.TemplateDate = date
	return now, nil
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
	templates, err := m.ChatTemplates()
	if err != nil {
		return nil, err
	}
	t.ChatTemplate, t.ToolUse = templates["default"], templates[toolUse]
	if t.SpecialTokens, err = m.SpecialTokens(); err != nil {
		return nil, err
	}
	if t.TemplateDate, err = recordedDate(m); err != nil {
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

// recordedDate reads what saveText wrote; "" where there is nothing.
func recordedDate(m *modelfile.Model) (string, error) {
	data, err := m.File("tokenizer_config.json")
	if err != nil || data == nil {
		return "", err
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("policy: tokenizer_config.json: %w (in %s)", err, m.Path)
	}
	date, ok := config[dateKey]
	if !ok {
		return "", nil
	}
	text, _ := date.(string)
	if _, err := time.Parse(time.DateOnly, text); err != nil {
		return "", fmt.Errorf("policy: tokenizer_config.json: %s is %v; a day YYYY-MM-DD is needed (in %s)", dateKey, date, m.Path)
	}
	return text, nil
}

// Template compiles ChatTemplate, and ToolUse for what has tools, with the variables that transformers gives it. A construct that cannot be rendered
// exactly is refused by name.
func (t *Text) Template() (*jinja.Template, error) {
	if t.ChatTemplate == "" {
		return nil, errors.New("policy: the model has no chat template; give one with model.chat_template")
	}
	o := jinja.Options{BOSToken: t.SpecialTokens["bos_token"], EOSToken: t.SpecialTokens["eos_token"], Specials: map[string]string{}, ToolUse: t.ToolUse}
	for name, text := range t.SpecialTokens {
		if name != "bos_token" && name != "eos_token" {
			o.Specials[name] = text
		}
	}
	compiled, err := jinja.Compile(t.ChatTemplate, o)
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
