package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	form "github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// DefaultParser is the form of calls that a server reads where nobody says which.
const DefaultParser = "hermes"

var _ = declareKind(Kind{
	Name: defaultKind, Description: "calls in the model's own format, then a final answer",
	Format: FormatSpec{
		Name: DefaultParser, Description: `<tool_call>{"name": …, "arguments": {…}}</tool_call>, several a turn`,
		Parsers: []string{DefaultParser, "qwen3_json"}, InTemplates: true, InRenderer: true, New: newHermes,
	},
})

// hermes writes a call as <tool_call>{"name": …, "arguments": {…}}</tool_call>, the form of the Hermes models and of
// Qwen2.5 and Qwen3. A turn may hold several calls. A turn without a call is the final answer: the body of
// <answer>…</answer> where it has one, else its whole text.
type hermes struct {
	role  string
	specs []tools.Spec
	tools string // the specs, one JSON object a line
}

const (
	callOpen  = "<tool_call>"
	callClose = "</tool_call>"
	callUsage = `<tool_call>{"name": "...", "arguments": {...}}</tool_call>`
)

var (
	_ Writer   = (*hermes)(nil)
	_ Required = (*hermes)(nil)
	_ grammar  = (*hermes)(nil)
)

func newHermes(specs []tools.Spec, o FormatOptions) (Format, error) {
	tools, err := described(specs)
	return &hermes{role: cmp.Or(o.ObservationRole, "tool"), specs: specs, tools: tools}, err
}

// Write implements Writer.
func (f *hermes) Write(call trajectory.ToolCall) string {
	name, _ := json.Marshal(call.Name) // a string
	return callOpen + "\n{\"name\": " + string(name) + ", \"arguments\": " + written(call.Arguments) + "}\n" + callClose
}

// Instructions are the words of Qwen's chat template.
func (f *hermes) Instructions() string {
	return "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n" + f.tools + "\n</tools>\n\n" +
		"For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
		"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
}

// Stops is empty: a turn may hold several calls, and the model ends it itself.
func (f *hermes) Stops() []string { return nil }

// Calls implements Required.
func (f *hermes) Calls(several bool) (form.Expr, error) {
	object, err := namedCalls(f.specs, "arguments")
	return listed(form.Sequence(form.Text(callOpen+"\n"), object, form.Text("\n"+callClose)), "\n", several), err
}

func (f *hermes) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return messages(f.role, results), nil
}

func (f *hermes) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	calls, errs, _ := collect(f, text)
	switch {
	case len(calls) > 0 || len(errs) > 0:
		return Parsed{Calls: calls, Errors: errs}, nil
	case strings.Contains(text, callClose):
		return Parsed{Errors: []string{"there is </tool_call> without <tool_call>; write " + callUsage}}, nil
	}
	return answered(text, true), nil
}

// next reads a JSON object: its end is where JSON has it, so that a closing tag within a string does no harm. The closing tag may be
// missing at the very end: models stop there.
func (f *hermes) next(text string, from int, last bool) segment {
	start, _ := first(text, from, callOpen)
	if start < 0 {
		return nothing(text, from, last, callOpen)
	}
	after := start + len(callOpen)
	// broken is a call that cannot be read. It ends with the first closing tag behind at.
	broken := func(at int, why string) segment {
		end, _ := first(text, at, callClose)
		switch {
		case end >= 0:
			end += len(callClose)
		case last:
			end = len(text)
		default:
			return open(start)
		}
		return segment{start: start, end: end, errors: []string{why + "; write " + callUsage}}
	}
	data, length, err := value(text[after:])
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && !last:
		return open(start)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return segment{start: start, end: len(text), errors: []string{"the call is not JSON (it ends too early); write " + callUsage}}
	case err != nil:
		return broken(after, fmt.Sprintf("the call is not JSON (%s)", wording.Clip(wording.JSONReason(err), 120)))
	}
	end := skip(text, after+length)
	switch rest := text[end:]; {
	case strings.HasPrefix(rest, callClose):
		end += len(callClose)
	case !last && could(rest, callClose):
		return open(start)
	case rest != "":
		return broken(end, "there is text between the call's JSON object and </tool_call>")
	}
	call, wrong := namedCall(data, callUsage, "arguments")
	if wrong != "" {
		return segment{start: start, end: end, errors: []string{wrong}}
	}
	return segment{start: start, end: end, calls: []trajectory.ToolCall{call}}
}
