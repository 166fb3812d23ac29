package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// specialNames are the special tokens that transformers passes to a template.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Load compiles the chat template of a model's folder: chat_template.jinja and additional_chat_templates/*.jinja, else
// chat_template of tokenizer_config.json (a text, or a list of named ones). Special tokens come from
// tokenizer_config.json and special_tokens_map.json. A folder without a template is an error.
func Load(dir string) (*Template, error) {
	config, err := readObject(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	more, err := readObject(filepath.Join(dir, "special_tokens_map.json"))
	if err != nil {
		return nil, err
	}
	o := Options{Specials: map[string]string{}}
	for _, name := range specialNames {
		for _, from := range []map[string]json.RawMessage{config, more} {
			if token := tokenText(from[name]); token != "" {
				o.Specials[name] = token
				break
			}
		}
	}
	o.BOSToken, o.EOSToken = o.Specials["bos_token"], o.Specials["eos_token"]
	named, err := sources(dir, config["chat_template"])
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("template: %s has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json", dir)
	}
	return Set(named, o)
}

func readObject(path string) (map[string]json.RawMessage, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	var out map[string]json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("template: %s: %w", path, err)
	}
	return out, nil
}

// tokenText is a token written as a text or as an object with its content.
func tokenText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var object struct{ Content string }
	if json.Unmarshal(raw, &object) == nil {
		return object.Content
	}
	return ""
}

func sources(dir string, inConfig json.RawMessage) (map[string]string, error) {
	named := map[string]string{}
	raw, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	switch {
	case err == nil:
		named["default"] = string(raw)
		others, err := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
		if err != nil {
			return nil, fmt.Errorf("template: %w", err)
		}
		for _, path := range others {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("template: %w", err)
			}
			named[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(raw)
		}
		return named, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("template: %w", err)
	}
	if len(inConfig) == 0 || string(inConfig) == "null" {
		return named, nil
	}
	var one string
	if json.Unmarshal(inConfig, &one) == nil {
		named["default"] = one
		return named, nil
	}
	var many []struct{ Name, Template string }
	if err := json.Unmarshal(inConfig, &many); err != nil {
		return nil, fmt.Errorf("template: %s: chat_template is neither a text nor a list of named templates", filepath.Join(dir, "tokenizer_config.json"))
	}
	for _, t := range many {
		named[t.Name] = t.Template
	}
	return named, nil
}

// probeTool is the schema that UsesTools shows to a template.
const probeTool = `{"type": "function", "function": {"name": "probe_tool", "description": "probe", "parameters": {"type": "object", ` +
	`"properties": {"x": {"type": "string", "description": "probe"}}, "required": ["x"]}}}`

// UsesTools tells whether the template writes the schemas of tools. SmolLM2's, for one, ignores them.
func (t *Template) UsesTools() bool {
	for _, messages := range [][]trajectory.Message{
		{trajectory.Text("system", "s"), trajectory.Text("user", "u")},
		{trajectory.Text("user", "u")},
	} {
		in := Input{Messages: messages, Tools: []json.RawMessage{json.RawMessage(probeTool)}, AddGenerationPrompt: true, Now: probeTime}
		text, err := t.Render(in)
		if err == nil && strings.Contains(text, "probe_tool") {
			return true
		}
	}
	return false
}
