package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	form "github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareFormat(FormatSpec{
	Name: "llama3_json", Kind: defaultKind, Description: `{"name": …, "parameters": {…}}, <|python_tag|> before it or not, several with ; between`,
	Parsers: []string{"llama3_json", "llama4_json"}, InTemplates: true, New: newLlama,
})

// llama writes a call as {"name": …, "parameters": {…}}, the form of Llama 3.1 to 3.3, with or without <|python_tag|> before it; several are
// separated by semicolons. "arguments" is read like "parameters". Text around the calls is no harm. A JSON object that has no name, or
// neither parameters nor the name of a tool, is no call. A turn without a call is the final answer, as in hermes.
type llama struct {
	role  string
	tools string
	names []string
	specs []tools.Spec
}

const (
	pythonTag  = "<|python_tag|>"
	llamaUsage = `{"name": "...", "parameters": {...}}`
)

var (
	_ Format   = (*llama)(nil)
	_ Required = (*llama)(nil)
	_ grammar  = (*llama)(nil)
	_ Marks    = (*llama)(nil)
)

func newLlama(specs []tools.Spec, o FormatOptions) (Format, error) {
	tools, err := described(specs)
	return &llama{role: cmp.Or(o.ObservationRole, "tool"), tools: tools, names: specNames(specs), specs: specs}, err
}

// Instructions follow Llama 3.1's chat template.
func (f *llama) Instructions() string {
	return "You have access to the following functions. To call a function, please respond with JSON for a function call.\n" +
		`Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.` + "\n" +
		"Do not use variables. Several calls are separated by semicolons.\n\n" + f.tools
}

// Stops is empty: a turn may hold several calls, and the model ends it itself.
func (f *llama) Stops() []string { return nil }

// Marks is the token before a call.
func (f *llama) Marks() []string { return []string{pythonTag} }

// Calls implements Required.
func (f *llama) Calls(several bool) (form.Expr, error) {
	object, err := namedCalls(f.specs, "parameters")
	return listed(object, "; ", several), err
}

func (f *llama) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return messages(f.role, results), nil
}

func (f *llama) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	calls, errs, _ := collect(f, text)
	if len(calls) > 0 || len(errs) > 0 {
		return Parsed{Calls: calls, Errors: errs}, nil
	}
	return answered(text, true), nil
}

func (f *llama) next(text string, from int, last bool) segment {
	for at := from; ; {
		start, mark := first(text, at, pythonTag, ";", "{")
		if start < 0 {
			return nothing(text, from, last, pythonTag)
		}
		// A call is begun on purpose when the completion, a tag or a semicolon stands before it: if it is broken, the model should know.
		before := strings.TrimSpace(text[:start])
		object, meant := start, mark == pythonTag || before == "" || mark == ";" && strings.HasSuffix(before, "}")
		if mark != "{" {
			object = skip(text, start+len(mark))
			if object == len(text) && !last {
				return open(start)
			}
		}
		if !strings.HasPrefix(text[object:], "{") {
			if mark == pythonTag {
				return segment{start: start, end: object, errors: []string{"after " + pythonTag + " comes no JSON object; write " + llamaUsage}}
			}
			at = start + 1
			continue
		}
		s, more := f.object(text, start, object, meant, last)
		switch {
		case more:
			return open(start)
		case s.end > 0:
			return s
		}
		at = object + 1
	}
}

// object reads the JSON object that begins at text[at:]; the zero segment says that it is no call.
func (f *llama) object(text string, start, at int, meant, last bool) (s segment, more bool) {
	key := skip(text, at+1)
	if key < len(text) && text[key] != '"' || key == len(text) && last {
		return segment{}, false
	}
	data, length, err := value(text[at:])
	var broken *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && !last:
		return segment{}, true
	case err != nil && !(meant && (strings.HasPrefix(text[key:], `"name"`) || text[start] == '<')):
		return segment{}, false
	case err != nil:
		why := fmt.Sprintf("the call is not JSON (%s); write %s", wording.Clip(wording.JSONReason(err), 120), llamaUsage)
		s = segment{start: start, end: len(text), errors: []string{why}}
		if errors.As(err, &broken) { // wherever the text ends by now
			s.end = min(len(text), max(at+1, at+int(broken.Offset)))
		}
		return s, false
	}
	s = segment{start: start, end: at + length}
	var in map[string]json.RawMessage
	_ = json.Unmarshal(data, &in) // it is an object
	call, wrong := namedCall(data, llamaUsage, "arguments", "parameters")
	complete := in["name"] != nil && (in["parameters"] != nil || in["arguments"] != nil)
	switch {
	case !complete && (wrong != "" || !slices.Contains(f.names, call.Name)): // some other JSON: it is content
	case wrong != "":
		s.errors = []string{wrong}
	default:
		s.calls = []trajectory.ToolCall{call}
	}
	return s, false
}
