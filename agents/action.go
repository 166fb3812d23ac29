package agents

import (
	"cmp"
	"context"
	"strings"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// OneAction is the kind of agents that write one action a turn, which a job with an environment has that names no kind.
const OneAction = "action"

var _ = declareKind(Kind{
	Name: OneAction, Description: "one text a turn for the one tool",
	Format: FormatSpec{Name: OneAction, Description: "<action>…</action>, or the turn's first line that is not empty", OneTool: true, New: newAction},
})

// action passes one text a turn to the job's one tool or environment: what stands between <action> and </action>, else the first line that is
// not empty. There is no answer: the environment, or the number of turns, ends the trajectory.
type action struct {
	role string
	tool theTool
}

const (
	actionOpen  = "<action>"
	actionClose = "</action>"
)

var (
	_ Format  = (*action)(nil)
	_ grammar = (*action)(nil)
)

func newAction(specs []tools.Spec, o FormatOptions) (Format, error) {
	tool, err := onlyTool(specs)
	return &action{role: cmp.Or(o.ObservationRole, "user"), tool: tool}, err
}

func (f *action) Instructions() string {
	return f.tool.description + " Write one action in a turn, and nothing else: <action>...</action>, or the action alone on the first line."
}

// Stops ends an action.
func (f *action) Stops() []string { return []string{actionClose} }

func (f *action) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return oneMessage(f.role, "", "", "\n", results), nil
}

func (f *action) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	calls, errs, _ := collect(f, text)
	if len(calls) == 0 && len(errs) == 0 {
		errs = []string{"there is no action; write <action>...</action>"}
		if strings.TrimSpace(completion) == "" { // of special tokens alone, say; plain text is an action too
			errs = []string{"the completion was empty; write an action"}
		}
	}
	return Parsed{Calls: calls, Errors: errs}, nil
}

// next waits for the end: the tag may stand behind other lines.
func (f *action) next(text string, from int, last bool) segment {
	start, _ := first(text, from, actionOpen)
	end := -1
	if start >= 0 {
		end, _ = first(text, start, actionClose)
	}
	found := segment{start: start, end: len(text), stop: true}
	var body string
	switch {
	case end < 0 && !last:
		return open(from)
	case start >= 0 && end < 0:
		found.errors = []string{"the action is not closed; write <action>...</action>"}
		return found
	case start >= 0:
		body = text[start+len(actionOpen) : end]
		found.end = end + len(actionClose)
	default:
		found.start, found.unmarked = skip(text, from), true
		body, _, _ = strings.Cut(text[found.start:], "\n")
		found.end = found.start + len(body)
	}
	if body = strings.TrimSpace(body); body == "" {
		if found.end == found.start {
			return open(len(text))
		}
		found.errors = []string{"the action is empty; write <action>...</action>"}
		return found
	}
	if call, err := f.tool.call(body); err != nil {
		found.errors = []string{"the action cannot be read; write <action>...</action>"}
	} else {
		found.calls = []trajectory.ToolCall{call}
	}
	return found
}
