package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// OpenAI writes specs as OpenAI's `tools` array.
func OpenAI(specs []Spec) ([]byte, error) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	out := make([]tool, len(specs))
	for i, s := range specs {
		out[i] = tool{"function", function{s.Name, s.Description, s.Parameters}}
	}
	return Marshal(out)
}

// Marshal writes JSON without escaping < > &, which a model would read as text.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
