package agents

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareKind(Kind{
	Name: "search_r1", Description: "<search>, <information>, <answer>",
	Format: FormatSpec{Name: "search_r1", Description: "<search>query</search>; the answer is <answer>…</answer>", OneTool: true, New: newSearch},
})

// search is the form of Search-R1 (arXiv 2503.09516): <search>query</search> asks the job's one tool, what it finds comes between
// <information> and </information>, and <answer>…</answer> ends the trajectory. Of searches and answers the first that is closed counts. A
// turn with neither is told so, in the paper's words.
type search struct {
	role string
	tool theTool
}

const (
	searchTag      = "search"
	informationTag = "information"
	searchInvalid  = "My previous action is invalid. If I want to search, I should put the query between <search> and </search>. " +
		"If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again."
)

var (
	_ Format  = (*search)(nil)
	_ grammar = (*search)(nil)
)

func newSearch(specs []tools.Spec, o FormatOptions) (Format, error) {
	tool, err := onlyTool(specs)
	return &search{role: cmp.Or(o.ObservationRole, "user"), tool: tool}, err
}

// Instructions follow the template of the paper (table 1).
func (f *search) Instructions() string {
	return "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new information. " +
		"After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query </search>, and it will return the " +
		"top searched results between <information> and </information>. You can search as many times as you want. If you find no further " +
		"external knowledge needed, you can directly provide the answer inside <answer> and </answer> without detailed illustrations. " +
		"For example, <answer> Beijing </answer>."
}

// Stops are the ends of the two actions.
func (f *search) Stops() []string { return []string{"</" + searchTag + ">", "</" + answerTag + ">"} }

func (f *search) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	parts := make([]string, len(results))
	for i, r := range results {
		parts[i] = fmt.Sprintf("<%s>%s</%s>", informationTag, strings.TrimSpace(r.Observation), informationTag)
		if r.Call.Name == "" { // it was no call
			parts[i] = strings.TrimPrefix(r.Observation, "Error: ")
		}
	}
	return []trajectory.Message{trajectory.Text(f.role, strings.Join(parts, "\n"))}, nil
}

func (f *search) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	tag, _, body, _ := searchAction(text)
	switch {
	case tag == answerTag:
		return Parsed{Answer: body, HasAnswer: true}, nil
	case tag == "" && strings.TrimSpace(text) == "":
		return Parsed{}, nil
	case tag == "":
		return Parsed{Errors: []string{searchInvalid}}, nil
	}
	call, err := f.tool.call(body)
	if err != nil {
		return Parsed{Errors: []string{searchInvalid}}, nil
	}
	return Parsed{Calls: []trajectory.ToolCall{call}}, nil
}

// searchAction is the first search or answer that is closed: its tag, where it begins, what it holds and where it ends.
func searchAction(text string) (tag string, start int, body string, end int) {
	for at := 0; ; at = start + 1 {
		var open string
		if start, open = first(text, at, "<"+searchTag+">", "<"+answerTag+">"); start < 0 {
			return "", -1, "", -1
		}
		tag = strings.Trim(open, "<>")
		inside := start + len(open)
		if i := strings.Index(text[inside:], "</"+tag+">"); i >= 0 {
			return tag, start, strings.TrimSpace(text[inside : inside+i]), inside + i + len(tag) + 3
		}
	}
}

// next finds the first action. What comes before from is looked at again: it may be an answer.
func (f *search) next(text string, from int, last bool) segment {
	tag, start, body, end := searchAction(text)
	begun, _ := first(text, 0, "<"+searchTag+">", "<"+answerTag+">")
	if begun >= 0 && begun != start && !last { // it may still be closed, and would be the first
		return open(begun)
	}
	switch tag {
	case "":
		return nothing(text, from, last, "<"+searchTag+">", "<"+answerTag+">")
	case answerTag:
		return open(len(text))
	}
	out := segment{start: start, end: end, stop: true}
	if call, err := f.tool.call(body); err == nil {
		out.calls = []trajectory.ToolCall{call}
	} else {
		out.errors = []string{searchInvalid}
	}
	return out
}
