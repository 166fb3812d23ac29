package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareFormat(FormatSpec{
	Name: "tags", Kind: defaultKind, Description: "<NAME>…</NAME>; the answer is <answer>…</answer>", New: newTags,
})

// tags writes a call as <NAME>…</NAME> and the answer as <answer>…</answer>. When a tool has exactly one required
// argument and it is a string, the body is that argument; otherwise it is the JSON object of the arguments. A turn has
// one call: what follows the first complete one is ignored.
type tags struct {
	role  string
	specs []tools.Spec
	tools map[string]tagTool
	names []string
}

type tagTool struct {
	argument string // the single string argument; empty when the body is a JSON object
	usage    string // <calculator>expression</calculator>
}

const (
	answerTag = "answer"
	resultTag = "result"
)

var (
	_ Writer  = (*tags)(nil)
	_ grammar = (*tags)(nil)
)

func newTags(specs []tools.Spec, o FormatOptions) (Format, error) {
	f := &tags{role: cmp.Or(o.ObservationRole, "user"), specs: specs, tools: map[string]tagTool{}, names: specNames(specs)}
	for _, spec := range specs {
		if slices.Contains([]string{answerTag, resultTag, "think"}, spec.Name) {
			return nil, fmt.Errorf("a tool cannot be named %q, the format uses that tag itself; rename the tool", spec.Name)
		}
		usage, argument, err := usageOf(spec)
		if err != nil {
			return nil, err
		}
		t := tagTool{argument: argument}
		body := cmp.Or(argument, usage)
		t.usage = "<" + spec.Name + ">" + body + "</" + spec.Name + ">"
		f.tools[spec.Name] = t
	}
	return f, nil
}

func (f *tags) Instructions() string {
	var b strings.Builder
	b.WriteString("Tools:\n")
	for _, spec := range f.specs {
		fmt.Fprintf(&b, "%s %s\n", f.tools[spec.Name].usage, spec.Description)
	}
	b.WriteString("Call one tool in a turn. What it returns comes as <result>...</result>. When you know the answer, write <answer>...</answer>.")
	return b.String()
}

func (f *tags) Stops() []string {
	out := make([]string, 0, len(f.names)+1)
	for _, name := range f.names {
		out = append(out, "</"+name+">")
	}
	return append(out, "</"+answerTag+">")
}

func (f *tags) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return oneMessage(f.role, "<"+resultTag+">", "</"+resultTag+">", "\n", results), nil
}

// Write implements Writer. Where the body is one argument it cannot have others, nor white space around it.
func (f *tags) Write(call trajectory.ToolCall) string {
	body := written(call.Arguments)
	if name := f.tools[call.Name].argument; name != "" {
		var arguments map[string]string
		if json.Unmarshal(call.Arguments, &arguments) == nil {
			body = arguments[name]
		}
	}
	return "<" + call.Name + ">" + body + "</" + call.Name + ">"
}

func (f *tags) Parse(_ context.Context, completion string) (Parsed, error) {
	rest := afterThinking(f, completion)
	var out, stray Parsed
	for {
		_, after, found := strings.Cut(rest, "<")
		if !found {
			break
		}
		rest = after
		name, body, isTag := strings.Cut(rest, ">")
		if !isTag {
			break
		}
		tool, isTool := f.tools[name]
		switch {
		case isTool:
			return f.call(name, tool, body), nil
		case name == answerTag && !out.HasAnswer:
			answer, after, closed := strings.Cut(body, "</"+answerTag+">")
			if !closed {
				stray.Errors = append(stray.Errors, "the answer is not closed; write <answer>...</answer>")
				break
			}
			out.Answer, out.HasAnswer = strings.TrimSpace(answer), true
			rest = after
		case wording.ValidName(name) && strings.Contains(body, "</"+name+">") && len(stray.Errors) == 0:
			if near := wording.DidYouMean(name, f.names); near != "" {
				stray.Errors = append(stray.Errors, fmt.Sprintf("there is no tool %q%s", name, near))
			}
		}
	}
	if out.HasAnswer {
		return out, nil
	}
	return stray, nil
}

// next finds the first call of a tool outside of the first closed answer, as Parse does. What comes before from is looked at again: there
// may be that answer.
func (f *tags) next(text string, from int, last bool) segment {
	answered := false
	for at := 0; ; at++ {
		i := strings.IndexByte(text[at:], '<')
		if i < 0 {
			return nothing(text, from, last)
		}
		start := at + i
		at = start
		name, more := f.tag(text[start:])
		if more && !last {
			return open(start)
		}
		if name == "" || name == answerTag && answered {
			continue
		}
		body := start + len(name) + 2
		end, closing := first(text, body, "</"+name+">")
		switch {
		case end < 0 && !last:
			return open(start)
		case end < 0 && name == answerTag: // not closed: a call in it counts
			continue
		case name == answerTag:
			answered, at = true, end
			continue
		case end < 0:
			return segment{start: start, end: len(text), errors: f.call(name, f.tools[name], text[body:]).Errors}
		}
		p := f.call(name, f.tools[name], text[body:])
		return segment{start: start, end: end + len(closing), calls: p.Calls, errors: p.Errors, stop: true}
	}
}

// tag is the name of the opening tag that text begins with, "" for none that matters; more says that it may become one.
func (f *tags) tag(text string) (name string, more bool) {
	for _, name := range append([]string{answerTag}, f.names...) {
		tag := "<" + name + ">"
		if strings.HasPrefix(text, tag) {
			return name, false
		}
		more = more || could(text, tag)
	}
	return "", more
}

// call reads the body of the first call; text after it is ignored.
func (f *tags) call(name string, t tagTool, rest string) Parsed {
	body, _, closed := strings.Cut(rest, "</"+name+">")
	if !closed {
		return Parsed{Errors: []string{fmt.Sprintf("the call of %s is not closed; write %s", name, t.usage)}}
	}
	body = strings.TrimSpace(body)
	c := trajectory.ToolCall{Name: name}
	switch {
	case t.argument != "":
		arguments, err := wording.JSON(map[string]string{t.argument: body})
		if err != nil {
			return Parsed{Errors: []string{fmt.Sprintf("the call of %s cannot be read; write %s", name, t.usage)}}
		}
		c.Arguments = arguments
	case body == "":
		c.Arguments = json.RawMessage("{}")
	default:
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &object); err != nil || object == nil {
			return Parsed{Errors: []string{fmt.Sprintf("the call of %s does not hold a JSON object; write %s", name, t.usage)}}
		}
		c.Arguments = json.RawMessage(body)
	}
	return Parsed{Calls: []trajectory.ToolCall{c}}
}
