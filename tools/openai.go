package tools

import (
	"encoding/json"

	"github.com/agentfly/agentfly/internal/wording"
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
	return wording.JSON(out)
}
