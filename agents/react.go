package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareKind(Kind{
	Name: "react", Description: "lines Thought, Action, Action Input, Final Answer",
	Format: FormatSpec{Name: "react", Description: "lines Action: NAME and Action Input: {…}; the answer is Final Answer:", New: newReact},
})

// react is the text form of ReAct (arXiv 2210.03629) that LangChain and AgentFly read: lines that begin with Thought:, Action:, Action Input:
// and Final Answer:. The input is a JSON object, or the text alone for a tool that needs one text. A turn has one call or one answer, whichever
// comes first; an observation that the model made up ends it.
type react struct {
	role  string
	specs []tools.Spec
	tools map[string]reactTool
	names []string
}

type reactTool struct{ usage, argument string }

const (
	labelThought     = "Thought:"
	labelAction      = "Action:"
	labelInput       = "Action Input:"
	labelObservation = "Observation:"
	labelAnswer      = "Final Answer:"
	reactUsage       = "write Action: with the tool's name and on the next line Action Input: with its arguments, or Final Answer: with the answer"
)

// reactLabels begin a line. The short forms are AgentFly's.
var reactLabels = []struct{ text, means string }{
	{labelThought, labelThought},
	{labelInput, labelInput},
	{"Input:", labelInput},
	{labelAction, labelAction},
	{labelObservation, labelObservation},
	{labelAnswer, labelAnswer},
	{"Answer:", labelAnswer},
}

var (
	_ Format  = (*react)(nil)
	_ grammar = (*react)(nil)
)

func newReact(specs []tools.Spec, o FormatOptions) (Format, error) {
	f := &react{role: cmp.Or(o.ObservationRole, "user"), specs: specs, tools: map[string]reactTool{}, names: specNames(specs)}
	for _, spec := range specs {
		usage, argument, err := usageOf(spec)
		if err != nil {
			return nil, err
		}
		f.tools[spec.Name] = reactTool{usage, argument}
	}
	return f, nil
}

func (f *react) Instructions() string {
	var b strings.Builder
	b.WriteString("Answer with the help of these tools:\n")
	for _, spec := range f.specs {
		fmt.Fprintf(&b, "%s: %s Action Input: %s\n", spec.Name, spec.Description, f.tools[spec.Name].usage)
	}
	fmt.Fprintf(&b, "\nUse this format:\n%s what to do next\n%s one of %s\n%s its arguments, a JSON object\n%s what the tool returned; you do not write it\n(%s, %s, %s and %s may come again)\n%s the answer",
		labelThought, labelAction, strings.Join(f.names, ", "), labelInput, labelObservation,
		strings.TrimSuffix(labelThought, ":"), strings.TrimSuffix(labelAction, ":"), strings.TrimSuffix(labelInput, ":"), strings.TrimSuffix(labelObservation, ":"), labelAnswer)
	return b.String()
}

// Stops end what the model would make up.
func (f *react) Stops() []string { return []string{"\n" + labelObservation} }

func (f *react) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return oneMessage(f.role, labelObservation+" ", "", "\n", results), nil
}

// section is a label with the text up to the next one.
type section struct {
	label       string
	start, body int // of the line, and of what follows the label
	end         int
	closed      bool // another label follows
}

// sections are the labelled parts of a completion. tail is where a line begins that may become a label; the text's length for none.
func sections(text string) (out []section, tail int) {
	tail = len(text)
	for at := 0; at <= len(text); {
		begin := at + len(text[at:]) - len(strings.TrimLeft(text[at:], " \t"))
		label, more := labelOf(text[begin:])
		if label.text != "" {
			if n := len(out); n > 0 {
				out[n-1].end, out[n-1].closed = at, true
			}
			out = append(out, section{label: label.means, start: at, body: begin + len(label.text), end: len(text)})
		}
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			if more {
				tail = at
			}
			break
		}
		at += next + 1
	}
	return out, tail
}

// labelOf is the label that a line begins with; more says that it may become one.
func labelOf(line string) (label struct{ text, means string }, more bool) {
	for _, l := range reactLabels {
		if strings.HasPrefix(line, l.text) {
			return l, false
		}
		more = more || could(line, l.text)
	}
	return label, more
}

func (f *react) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	all, _ := sections(text)
	for i, s := range all {
		switch s.label {
		case labelAction:
			call, wrong := f.call(text, all[i:])
			if wrong != "" {
				return Parsed{Errors: []string{wrong}}, nil
			}
			return Parsed{Calls: []trajectory.ToolCall{call}}, nil
		case labelAnswer:
			return Parsed{Answer: strings.TrimSpace(text[s.body:s.end]), HasAnswer: true}, nil
		case labelObservation:
			return Parsed{Errors: []string{"the observation comes from the tool; " + reactUsage}}, nil
		case labelInput:
			return Parsed{Errors: []string{"there is Action Input: without Action:; " + reactUsage}}, nil
		}
	}
	if len(all) > 0 {
		return Parsed{Errors: []string{"there is neither Action: nor Final Answer:; " + reactUsage}}, nil
	}
	return Parsed{}, nil
}

// call reads an action with the input that follows.
func (f *react) call(text string, all []section) (trajectory.ToolCall, string) {
	name := strings.Trim(text[all[0].body:all[0].end], blank+"`")
	if name == "" {
		return trajectory.ToolCall{}, "the action has no name; " + reactUsage
	}
	if len(all) < 2 || all[1].label != labelInput {
		return trajectory.ToolCall{}, "behind Action: " + line(name) + " comes no Action Input:; " + reactUsage
	}
	input := strings.TrimSpace(text[all[1].body:all[1].end])
	tool := f.tools[name]
	out := trajectory.ToolCall{Name: name}
	var members map[string]json.RawMessage
	switch {
	case json.Unmarshal([]byte(input), &members) == nil && members != nil:
		out.Arguments = json.RawMessage(input)
	case tool.argument != "":
		var quoted string
		if json.Unmarshal([]byte(input), &quoted) == nil {
			input = quoted
		}
		arguments, err := wording.JSON(map[string]string{tool.argument: input})
		if err != nil {
			return out, "the input of " + line(name) + " cannot be read; " + reactUsage
		}
		out.Arguments = arguments
	case input == "" || tool.usage == "": // a tool that is not there: that is what the model reads
		out.Arguments = json.RawMessage("{}")
	default:
		return out, "the input of " + line(name) + " is not a JSON object; write Action Input: " + tool.usage
	}
	return out, ""
}

// next finds the action. What comes before from is looked at again: it may hold an answer.
func (f *react) next(text string, from int, last bool) segment {
	all, tail := sections(text)
	if last {
		tail = len(text)
	}
	for i, s := range all {
		switch s.label {
		case labelAnswer, labelObservation, labelInput: // nothing behind it is read
			return segment{start: len(text), end: len(text)}
		case labelAction:
		default:
			continue
		}
		part, end := all[i:], s
		if len(part) > 1 && part[1].label == labelInput {
			part, end = part[:2], part[1]
		}
		if !last && !end.closed {
			return open(s.start)
		}
		call, wrong := f.call(text, part)
		out := segment{start: s.start, end: end.end, stop: true}
		if wrong != "" {
			out.errors = []string{wrong}
		} else {
			out.calls = []trajectory.ToolCall{call}
		}
		return out
	}
	return open(max(from, tail))
}
