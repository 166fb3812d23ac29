package tools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// tags writes a call as <NAME>…</NAME> and the answer as <answer>…</answer>. When a tool has exactly one required
// argument and it is a string, the body is that argument; otherwise it is the JSON object of the arguments. A turn has
// one call: what follows the first complete one is ignored.
type tags struct {
	role  string
	specs []Spec
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

var _ Format = (*tags)(nil)

func newTags(specs []Spec, o FormatOptions) (*tags, error) {
	f := &tags{role: o.ObservationRole, specs: specs, tools: map[string]tagTool{}, names: specNames(specs)}
	if f.role == "" {
		f.role = "user"
	}
	for _, spec := range specs {
		if slices.Contains([]string{answerTag, resultTag, "think"}, spec.Name) {
			return nil, fmt.Errorf("tools: format tags: a tool cannot be named %q, the format uses that tag itself; rename the tool", spec.Name)
		}
		t := tagTool{}
		body := "{}"
		if len(spec.Parameters) > 0 {
			s, err := ParseSchema(spec.Parameters)
			if err != nil {
				return nil, fmt.Errorf("tools: format tags: %q: %w", spec.Name, err)
			}
			body = s.Usage()
			if len(s.Required) == 1 {
				p := s.property(s.Required[0])
				if p != nil && slices.Equal(p.Types, []string{"string"}) {
					t.argument, body = s.Required[0], s.Required[0]
				}
			}
		}
		t.usage = "<" + spec.Name + ">" + body + "</" + spec.Name + ">"
		f.tools[spec.Name] = t
	}
	return f, nil
}

func (f *tags) Name() string { return "tags" }

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

func (f *tags) Observe(results []trajectory.ToolResult) []trajectory.Message {
	parts := make([]string, len(results))
	for i, r := range results {
		parts[i] = "<" + resultTag + ">" + r.Observation + "</" + resultTag + ">"
	}
	return []trajectory.Message{trajectory.Text(f.role, strings.Join(parts, "\n"))}
}

func (f *tags) Parse(completion string) Parsed {
	rest := afterThinking(completion)
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
			return f.call(name, tool, body)
		case name == answerTag && !out.HasAnswer:
			answer, after, closed := strings.Cut(body, "</"+answerTag+">")
			if !closed {
				stray.Errors = append(stray.Errors, "the answer is not closed; write <answer>...</answer>")
				break
			}
			out.Answer, out.HasAnswer = strings.TrimSpace(answer), true
			rest = after
		case namePattern.MatchString(name) && strings.Contains(body, "</"+name+">") && len(stray.Errors) == 0:
			if near := suggest(name, f.names); near != "" {
				stray.Errors = append(stray.Errors, fmt.Sprintf("there is no tool %q%s", name, near))
			}
		}
	}
	if out.HasAnswer {
		return out
	}
	return stray
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
		arguments, err := marshal(map[string]string{t.argument: body})
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
