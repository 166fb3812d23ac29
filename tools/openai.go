package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// openAITool is an element of OpenAI's `tools` array.
type openAITool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ReadOpenAI reads an element of OpenAI's `tools` array. Parameters that are null, as some clients write a tool without any, are nil.
func ReadOpenAI(schema json.RawMessage) (Spec, error) {
	var t openAITool
	if err := json.Unmarshal(schema, &t); err != nil {
		return Spec{}, err
	}
	if string(t.Function.Parameters) == "null" {
		t.Function.Parameters = nil
	}
	return Spec{Name: t.Function.Name, Description: t.Function.Description, Parameters: t.Function.Parameters}, nil
}

// OpenAI writes specs as OpenAI's `tools` array.
func OpenAI(specs []Spec) ([]byte, error) {
	out := make([]openAITool, len(specs))
	for i, s := range specs {
		out[i].Type = "function"
		out[i].Function.Name, out[i].Function.Description, out[i].Function.Parameters = s.Name, s.Description, s.Parameters
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
