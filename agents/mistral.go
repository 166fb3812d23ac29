package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
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

var _ = declareFormat(FormatSpec{
	Name: "mistral", Kind: defaultKind, Description: `[TOOL_CALLS][{"name": …, "arguments": {…}}], and [TOOL_CALLS]name[ARGS]{…}`,
	Parsers: []string{"mistral"}, InTemplates: true, New: newMistral,
})

// mistral writes calls behind [TOOL_CALLS]: a list [{"name": …, "arguments": {…}}] or one such object, the form of the tokenizers up to v7,
// or NAME[ARGS]{…} and NAME{…}, the form since v11, each call with a [TOOL_CALLS] of its own. A turn without a call is the final answer, as
// in hermes. Results come from the user: Mistral's templates take a tool's message only behind an assistant's that has its calls apart from its
// text, and here the text is as it was sampled.
type mistral struct {
	role  string
	specs []tools.Spec
	tools string
}

const (
	mistralMark  = "[TOOL_CALLS]"
	mistralArgs  = "[ARGS]"
	mistralID    = "[CALL_ID]" // between name and arguments, in what v11 writes of earlier turns
	mistralUsage = `[TOOL_CALLS][{"name": "...", "arguments": {...}}]`
)

var (
	_ Format   = (*mistral)(nil)
	_ Required = (*mistral)(nil)
	_ grammar  = (*mistral)(nil)
	_ Marks    = (*mistral)(nil)
	_ CallIDs  = (*mistral)(nil)
)

func newMistral(specs []tools.Spec, o FormatOptions) (Format, error) {
	tools, err := described(specs)
	return &mistral{role: cmp.Or(o.ObservationRole, "user"), specs: specs, tools: tools}, err
}

// Instructions are in the words of hermes: Mistral's own templates have none, they write [AVAILABLE_TOOLS].
func (f *mistral) Instructions() string {
	return "You may call one or more functions to assist with the user query. The functions are:\n" + f.tools +
		"\n\nTo call functions, write " + mistralUsage + " with the function's name and arguments, one object for each call."
}

// Stops is empty: a turn may hold several calls, and the model ends it itself.
func (f *mistral) Stops() []string { return nil }

// Marks are special tokens of Mistral's tokenizers.
func (f *mistral) Marks() []string { return []string{mistralMark, mistralArgs, mistralID} }

// CallID is nine letters and digits: the templates of the tokenizers up to v11 refuse any other id.
func (f *mistral) CallID(digest [sha256.Size]byte) string {
	return base32.HexEncoding.EncodeToString(digest[:])[:9]
}

// Calls implements Required.
func (f *mistral) Calls(several bool) (form.Expr, error) {
	object, err := namedCalls(f.specs, "arguments")
	mark := form.Choice(form.Special(mistralMark), form.Text(mistralMark)) // whichever the vocabulary has
	return form.Sequence(mark, form.Text("["), listed(object, ", ", several), form.Text("]")), err
}

func (f *mistral) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	if f.role == "tool" {
		return messages(f.role, results), nil
	}
	return oneMessage(f.role, "", "", "\n", results), nil
}

func (f *mistral) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	calls, errs, _ := collect(f, text)
	if len(calls) > 0 || len(errs) > 0 {
		return Parsed{Calls: calls, Errors: errs}, nil
	}
	return answered(text, true), nil
}

func (f *mistral) next(text string, from int, last bool) segment {
	start, _ := first(text, from, mistralMark)
	if start < 0 {
		return nothing(text, from, last, mistralMark)
	}
	at := skip(text, start+len(mistralMark))
	for strings.HasPrefix(text[at:], mistralMark) { // several count as one
		at = skip(text, at+len(mistralMark))
	}
	wrong := func(end int, why string) segment {
		return segment{start: start, end: end, errors: []string{why + "; write " + mistralUsage}}
	}
	switch rest := text[at:]; {
	case !last && could(rest, mistralMark): // also of no rest
		return open(start)
	case rest == "":
		return wrong(at, "nothing follows "+mistralMark)
	case rest[0] == '[' && !strings.HasPrefix(rest, mistralArgs), rest[0] == '{':
		if !last && could(rest, mistralArgs) {
			return open(start)
		}
		return f.list(text, start, at, last, wrong)
	}
	return f.named(text, start, at, last, wrong)
}

// list reads calls that are written as JSON.
func (f *mistral) list(text string, start, at int, last bool, wrong func(int, string) segment) segment {
	data, length, err := value(text[at:])
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && !last:
		return open(start)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return wrong(len(text), "the call is not JSON (it ends too early)")
	case err != nil:
		return wrong(at+1, fmt.Sprintf("the call is not JSON (%s)", wording.Clip(wording.JSONReason(err), 120)))
	}
	items := []json.RawMessage{data}
	if data[0] == '[' {
		items = nil
		_ = json.Unmarshal(data, &items) // it is a list
	}
	s := segment{start: start, end: at + length}
	for _, item := range items {
		call, why := namedCall(item, mistralUsage, "arguments")
		if why != "" {
			return segment{start: start, end: s.end, errors: []string{why}}
		}
		s.calls = append(s.calls, call)
	}
	if len(items) == 0 {
		return wrong(s.end, "the list of calls is empty")
	}
	return s
}

// named reads NAME[ARGS]{…}.
func (f *mistral) named(text string, start, at int, last bool, wrong func(int, string) segment) segment {
	length := strings.IndexFunc(text[at:], func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.')
	})
	if length < 0 && !last {
		return open(start)
	}
	if length < 0 {
		return wrong(len(text), "the call has no arguments")
	}
	name, object := text[at:at+length], skip(text, at+length)
	if strings.HasPrefix(text[object:], mistralID) {
		id := object + len(mistralID)
		end := strings.IndexByte(text[id:], '[')
		switch {
		case end < 0 && !last:
			return open(start)
		case end < 0:
			return wrong(len(text), "the call has no arguments")
		}
		object = id + end
	}
	rest := text[object:]
	if !last && (could(rest, mistralArgs) || could(rest, mistralID)) {
		return open(start)
	}
	if strings.HasPrefix(rest, mistralArgs) {
		object = skip(text, object+len(mistralArgs))
		rest = text[object:]
	}
	switch {
	case rest == "" && !last:
		return open(start)
	case name == "" || !strings.HasPrefix(rest, "{"):
		return wrong(at+length, "behind "+mistralMark+" stands neither a list of calls nor a name with its arguments")
	}
	data, n, err := value(rest)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && !last:
		return open(start)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return wrong(len(text), "the arguments of "+line(name)+" are not JSON (it ends too early)")
	case err != nil:
		return wrong(object+1, fmt.Sprintf("the arguments of %s are not JSON (%s)", line(name), wording.Clip(wording.JSONReason(err), 120)))
	}
	return segment{start: start, end: object + n, calls: []trajectory.ToolCall{{Name: name, Arguments: data}}}
}
