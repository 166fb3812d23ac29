package tools

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// hermes writes a call as <tool_call>{"name": …, "arguments": {…}}</tool_call>, the form of the Hermes models and of
// Qwen2.5 and Qwen3. A turn may hold several calls. A turn without a call is the final answer: the body of
// <answer>…</answer> where it has one, else its whole text.
type hermes struct {
	role  string
	specs []Spec
	tools []byte // the specs, one JSON object a line
}

const (
	callOpen  = "<tool_call>"
	callClose = "</tool_call>"
	callUsage = `<tool_call>{"name": "...", "arguments": {...}}</tool_call>`
)

var _ Format = (*hermes)(nil)

func newHermes(specs []Spec, o FormatOptions) (*hermes, error) {
	f := &hermes{role: o.ObservationRole, specs: specs}
	if f.role == "" {
		f.role = "tool"
	}
	for i := range specs {
		array, err := OpenAI(specs[i : i+1])
		if err != nil {
			return nil, fmt.Errorf("tools: format hermes: %q: %w", specs[i].Name, err)
		}
		f.tools = append(append(f.tools, '\n'), array[1:len(array)-1]...)
	}
	return f, nil
}

func (f *hermes) Name() string { return "hermes" }

// Instructions are the words of Qwen's chat template.
func (f *hermes) Instructions() string {
	return "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>" + string(f.tools) + "\n</tools>\n\n" +
		"For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
		"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
}

// Stops is empty: a turn may hold several calls, and the model ends it itself.
func (f *hermes) Stops() []string { return nil }

func (f *hermes) Observe(results []trajectory.ToolResult) []trajectory.Message {
	out := make([]trajectory.Message, len(results))
	for i, r := range results {
		out[i] = trajectory.Text(f.role, r.Observation)
		if f.role == "tool" {
			out[i].Name, out[i].ToolCallID = r.Call.Name, r.Call.ID
		}
	}
	return out
}

func (f *hermes) Parse(completion string) Parsed {
	text := afterThinking(completion)
	var out Parsed
	rest := text
	for {
		_, after, found := strings.Cut(rest, callOpen)
		if !found {
			break
		}
		c, length, err := hermesCall(after)
		if err != nil {
			out.Errors = append(out.Errors, err.Error())
			_, rest, _ = strings.Cut(after, callClose)
			continue
		}
		out.Calls = append(out.Calls, c)
		rest = after[length:]
	}
	if len(out.Calls) > 0 || len(out.Errors) > 0 {
		return out
	}
	if strings.Contains(text, callClose) {
		out.Errors = []string{"there is </tool_call> without <tool_call>; write " + callUsage}
		return out
	}
	if _, after, found := strings.Cut(text, "<"+answerTag+">"); found {
		answer, _, closed := strings.Cut(after, "</"+answerTag+">")
		if !closed {
			return Parsed{Errors: []string{"the answer is not closed; write <answer>...</answer>"}}
		}
		return Parsed{Answer: strings.TrimSpace(answer), HasAnswer: true}
	}
	if text = strings.TrimSpace(text); text != "" {
		return Parsed{Answer: text, HasAnswer: true}
	}
	return out
}

// hermesCall reads the JSON object at the start of rest and returns where the text after </tool_call> begins. The
// closing tag may be missing at the very end: models stop there.
func hermesCall(rest string) (trajectory.ToolCall, int, error) {
	var in struct {
		Name      *string         `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	// The JSON decoder finds the end of the object, so that a closing tag within a string does no harm.
	d := json.NewDecoder(strings.NewReader(rest))
	if err := d.Decode(&in); err != nil {
		return trajectory.ToolCall{}, 0, fmt.Errorf("the call is not JSON (%s); write %s", clip(jsonReason(err), 120), callUsage)
	}
	end := int(d.InputOffset())
	tail := strings.TrimLeft(rest[end:], " \t\r\n")
	switch {
	case strings.HasPrefix(tail, callClose):
		end = len(rest) - len(tail) + len(callClose)
	case tail == "":
		end = len(rest)
	default:
		return trajectory.ToolCall{}, 0, fmt.Errorf("there is text between the call's JSON object and </tool_call>; write %s", callUsage)
	}
	if in.Name == nil || *in.Name == "" {
		return trajectory.ToolCall{}, 0, fmt.Errorf(`the call has no "name"; write %s`, callUsage)
	}
	arguments := in.Arguments
	if len(arguments) > 0 && arguments[0] == '"' { // some models write the object as a string
		var s string
		if err := json.Unmarshal(arguments, &s); err == nil {
			arguments = json.RawMessage(s)
		}
	}
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &object); err != nil || object == nil {
		return trajectory.ToolCall{}, 0, fmt.Errorf(`"arguments" of %s is not a JSON object; write %s`, clip(*in.Name, 64), callUsage)
	}
	return trajectory.ToolCall{Name: *in.Name, Arguments: arguments}, end, nil
}
