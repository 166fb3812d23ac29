package trajectory

import (
	"encoding/json"
	"fmt"
	"strings"
)

type messageJSON struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content,omitempty"`
	Reasoning  string          `json:"reasoning_content,omitempty"`
	ToolCalls  []toolCallJSON  `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`
}

type toolCallJSON struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// MarshalJSON writes OpenAI's form of a message, which UnmarshalJSON reads back; arguments are written as an object, as chat templates expect. A JSON string,
// such as of a call that was no JSON, is written as a text which holds it: else it would be read as what the string says.
func (m Message) MarshalJSON() ([]byte, error) {
	out := messageJSON{Role: m.Role, Reasoning: m.Reasoning, ToolCallID: m.ToolCallID, Name: m.Name}
	var err error
	switch {
	case len(m.Content) == 1 && m.Content[0].Type == "text":
		out.Content, err = json.Marshal(m.Content[0].Text)
	case len(m.Content) == 0:
		out.Content = json.RawMessage(`""`)
	default:
		out.Content, err = json.Marshal(m.Content)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range m.ToolCalls {
		j := toolCallJSON{ID: c.ID, Type: "function"}
		j.Function.Name, j.Function.Arguments = c.Name, c.Arguments
		switch {
		case len(c.Arguments) == 0:
			j.Function.Arguments = json.RawMessage(`{}`)
		case c.Arguments[0] == '"':
			if j.Function.Arguments, err = json.Marshal(string(c.Arguments)); err != nil {
				return nil, err
			}
		}
		out.ToolCalls = append(out.ToolCalls, j)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads OpenAI's form: content is null, a string or a list of parts; arguments are an object, or another JSON value but a string, or a
// string that holds a JSON value; a blank string is an empty object.
func (m *Message) UnmarshalJSON(data []byte) error {
	var in messageJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*m = Message{Role: in.Role, Reasoning: in.Reasoning, ToolCallID: in.ToolCallID, Name: in.Name}
	if len(in.Content) > 0 && string(in.Content) != "null" {
		switch in.Content[0] {
		case '"':
			var s string
			if err := json.Unmarshal(in.Content, &s); err != nil {
				return err
			}
			m.Content = []Part{{Type: "text", Text: s}}
		case '[':
			if err := json.Unmarshal(in.Content, &m.Content); err != nil {
				return err
			}
		default:
			return fmt.Errorf("trajectory: %s message: content must be a string or a list of parts", in.Role)
		}
	}
	for i, c := range in.ToolCalls {
		args := c.Function.Arguments
		if len(args) > 0 && args[0] == '"' {
			var s string
			if err := json.Unmarshal(args, &s); err != nil {
				return err
			}
			if strings.TrimSpace(s) == "" {
				s = "{}"
			}
			if !json.Valid([]byte(s)) {
				return fmt.Errorf("trajectory: tool call %d: arguments are not JSON", i)
			}
			args = json.RawMessage(s)
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: args})
	}
	return nil
}
