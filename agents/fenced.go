package agents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareKind(Kind{
	Name: "code", Description: "the first block of Python in a turn runs",
	Format: FormatSpec{Name: "fenced", Description: "the turn's first block ```python … ```; the answer is <answer>…</answer>", OneTool: true, New: newFenced},
})

// fenced runs the first Markdown block of Python in a turn with the job's one tool; what follows it is ignored. The answer is
// <answer>…</answer>, as in AgentFly's code agent and DeepSeek-R1; it counts in a turn without a block.
type fenced struct {
	role string
	tool theTool
}

const fencedUsage = "write ```python, the code on the lines below, and ``` on a line of its own"

var (
	_ Format  = (*fenced)(nil)
	_ grammar = (*fenced)(nil)
)

func newFenced(specs []tools.Spec, o FormatOptions) (Format, error) {
	tool, err := onlyTool(specs)
	return &fenced{role: cmp.Or(o.ObservationRole, "user"), tool: tool}, err
}

func (f *fenced) Instructions() string {
	return fmt.Sprintf("Solve the task step by step with Python code (%s). In each turn %s. One block runs in a turn, and what it prints comes back as ```output. "+
		"When you know the answer, write <answer>...</answer>.", strings.TrimSuffix(f.tool.description, "."), fencedUsage)
}

// Stops end what the model would write behind a block or an answer.
func (f *fenced) Stops() []string { return []string{"\n```\n", "</" + answerTag + ">"} }

func (f *fenced) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return oneMessage(f.role, "```output\n", "\n```", "\n", results), nil
}

func (f *fenced) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	calls, errs, _ := collect(f, text)
	switch {
	case len(calls) > 0 || len(errs) > 0:
		return Parsed{Calls: calls, Errors: errs}, nil
	case strings.Contains(text, "<"+answerTag+">"):
		return answered(text, false), nil
	case strings.Contains(text, "```"):
		return Parsed{Errors: []string{"no block of Python; " + fencedUsage}}, nil
	}
	return Parsed{}, nil
}

func (f *fenced) next(text string, from int, last bool) segment {
	for at := from; ; {
		start, fence := first(text, at, "```")
		if start < 0 {
			return nothing(text, from, last, "```")
		}
		at = start + len(fence)
		head, body, whole := strings.Cut(text[at:], "\n")
		language, rest, _ := strings.Cut(strings.TrimLeft(head, " \t`"), " ")
		if !whole && !last {
			return open(start)
		}
		if !slices.Contains([]string{"python", "python3", "py"}, strings.ToLower(strings.TrimSpace(language))) {
			continue // a block of something else, or the end of one
		}
		wrong := func(end int, why string) segment {
			return segment{start: start, end: end, errors: []string{why + "; " + fencedUsage}, stop: true}
		}
		if strings.TrimSpace(rest) != "" || !whole {
			return wrong(at+len(head), "the code does not begin on the line behind ```python")
		}
		end := strings.Index("\n"+body, "\n```")
		switch {
		case end < 0 && !last:
			return open(start)
		case end < 0:
			return wrong(len(text), "the block of code is not closed")
		}
		code := strings.TrimRight(body[:max(0, end-1)], blank)
		after := len(text) - len(body) + end + len("```")
		if code == "" {
			return wrong(after, "the block of code is empty")
		}
		call, err := f.tool.call(code)
		if err != nil {
			return wrong(after, "the block of code cannot be read")
		}
		return segment{start: start, end: after, calls: []trajectory.ToolCall{call}, stop: true}
	}
}
