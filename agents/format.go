package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Format is the way in which a model writes calls and its final answer, and reads observations: prompt, call format, stop rule and
// observation format in one. It knows the tools it was made for. A Format has no state; all methods are safe for concurrent use.
//
// An error is the format's own failure, such as that of a Python file, and ends the trajectory; the formats of this package have none.
type Format interface {
	// Instructions describe the tools and the format in words, for a system prompt whose template ignores `tools`.
	Instructions() string
	// Parse reads a completion. What the model wrote wrongly is no error: it becomes Parsed.Errors.
	Parse(ctx context.Context, completion string) (Parsed, error)
	// Observe writes the results of a turn, in their order, as the messages that the model reads next.
	Observe(ctx context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error)
	// Stops are the strings after which nothing in a completion is read; an engine may stop there. None is fine.
	Stops() []string
}

// Marks is what a Format has whose calls begin with texts that are special tokens of the models that write it: they must not be left
// out when a completion is decoded.
type Marks interface{ Marks() []string }

// CallIDs is what a Format has whose models' chat templates take ids of calls in one form alone. A digest gives the same id each time.
type CallIDs interface {
	CallID(digest [sha256.Size]byte) string
}

// Writer is a Format that writes a call as its models do. Whether Parse reads it as that call, who writes it asks: tags cannot
// write every call.
type Writer interface {
	Format
	Write(call trajectory.ToolCall) string
}

// written are the arguments of a call as a JSON object; none are {}.
func written(arguments json.RawMessage) string {
	if len(arguments) == 0 {
		return "{}"
	}
	return string(arguments)
}

// MarksOf are the marks of a format and the tags of a thought: some tokenizers call those special too, and a thought whose end is left
// out never ends.
func MarksOf(f Format) []string {
	var marks []string
	if m, ok := f.(Marks); ok {
		marks = slices.Clone(m.Marks())
	}
	return append(marks, thinkOpen, thinkClose)
}

// Parsed is what a completion asks for. At most one of Calls and HasAnswer is set: an answer beside a call, or beside
// a call that cannot be read, was not given after its observation and does not count.
type Parsed struct {
	Calls     []trajectory.ToolCall
	Answer    string
	HasAnswer bool
	Errors    []string // one for each call that cannot be read: what is wrong and how to do it right
}

// Failures are the errors as results, for Format.Observe.
func (p Parsed) Failures() []trajectory.ToolResult {
	out := make([]trajectory.ToolResult, len(p.Errors))
	for i, e := range p.Errors {
		out[i].Fail(trajectory.CauseParse, "Error: "+e)
	}
	return out
}

// FormatOptions adjust a format.
type FormatOptions struct {
	ObservationRole string // of the message that carries results; empty is the format's own: tool for what chat templates know, else user
}

// FormatFactory makes a format for the tools of a job, or of a request.
type FormatFactory func(specs []tools.Spec, o FormatOptions) (Format, error)

// afterThinking leaves out what comes before the end of a thought: what a thinking model writes between <think>, before any call or answer,
// and </think>, where calls are drafts. A thought with which the completion begins and that is not closed leaves nothing. Another </think>
// is text: it may stand in an argument.
func afterThinking(f grammar, completion string) string {
	if !strings.Contains(completion, thinkOpen) {
		return completion
	}
	s := Splitter{grammar: f}
	s.text.WriteString(completion)
	s.End()
	return completion[s.begin:]
}

// OpensThought tells that a prompt ends within a thought: its template wrote <think> behind the generation prompt, as those of
// Qwen3-Thinking, QwQ and the R1 distillations do, so that the completion goes on with the thought.
func OpensThought(prompt string) bool {
	return strings.HasSuffix(strings.TrimRight(prompt, blank), thinkOpen)
}

// ParseBehind reads a completion behind a prompt. Where the prompt opened a thought, the format reads the completion with the tag in
// front of it; a thought that does not end holds drafts alone, of whatever format.
func ParseBehind(ctx context.Context, f Format, prompt, completion string) (Parsed, error) {
	if !OpensThought(prompt) {
		return f.Parse(ctx, completion)
	}
	if !strings.Contains(completion, thinkClose) {
		return Parsed{}, nil
	}
	return f.Parse(ctx, thinkOpen+completion)
}

// EndsThought tells that a completion ends a thought that it did not begin.
func EndsThought(completion string) bool {
	return !isThinking(completion) && strings.Contains(completion, thinkClose)
}

// ParseUnseen reads a completion whose prompt nobody saw, as that of an endpoint which renders the conversation itself: a </think>
// without a <think> ends a thought that the prompt opened.
func ParseUnseen(ctx context.Context, f Format, completion string) (Parsed, error) {
	if EndsThought(completion) {
		completion = thinkOpen + completion
	}
	return f.Parse(ctx, completion)
}

func specNames(specs []tools.Spec) []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	slices.Sort(names)
	return names
}

// described are the specs as OpenAI's schemas, one JSON object a line.
func described(specs []tools.Spec) (string, error) {
	lines := make([]string, len(specs))
	for i := range specs {
		array, err := tools.OpenAI(specs[i : i+1])
		if err != nil {
			return "", fmt.Errorf("%q: %w", specs[i].Name, err)
		}
		lines[i] = string(array[1 : len(array)-1])
	}
	return strings.Join(lines, "\n"), nil
}

// usageOf are the arguments of a tool in words, and the name of the one text that it needs; "" when it needs more, or something else.
func usageOf(spec tools.Spec) (usage, text string, err error) {
	if len(spec.Parameters) == 0 {
		return "{}", "", nil
	}
	s, err := tools.ParseSchema(spec.Parameters)
	if err != nil {
		return "", "", fmt.Errorf("%q: %w", spec.Name, err)
	}
	if len(s.Required) == 1 {
		if p := s.Property(s.Required[0]); p != nil && slices.Equal(p.Types, []string{"string"}) {
			text = s.Required[0]
		}
	}
	return s.Usage(), text, nil
}

// theTool is a tool that is called with one text.
type theTool struct{ name, argument, description string }

// onlyTool is the tool of a format that has no place for a name: exactly one, called with one text.
func onlyTool(specs []tools.Spec) (theTool, error) {
	if len(specs) != 1 {
		return theTool{}, fmt.Errorf("it calls exactly one tool, whose only required argument is a text; got %d: %s", len(specs), cmp.Or(strings.Join(specNames(specs), ", "), "none"))
	}
	usage, argument, err := usageOf(specs[0])
	if err == nil && argument == "" {
		err = fmt.Errorf("it calls one tool with one text, and %s takes %s", specs[0].Name, usage)
	}
	return theTool{specs[0].Name, argument, specs[0].Description}, err
}

// call calls the tool with a text.
func (t theTool) call(text string) (trajectory.ToolCall, error) {
	arguments, err := wording.JSON(map[string]string{t.argument: text})
	return trajectory.ToolCall{Name: t.name, Arguments: arguments}, err
}

// messages writes each result as a message of the role; one of the role tool names its call.
func messages(role string, results []trajectory.ToolResult) []trajectory.Message {
	out := make([]trajectory.Message, len(results))
	for i, r := range results {
		out[i] = trajectory.Text(role, r.Observation)
		if role == "tool" {
			out[i].Name, out[i].ToolCallID = r.Call.Name, r.Call.ID
		}
	}
	return out
}

// oneMessage writes all results as one message, each between two texts.
func oneMessage(role, before, after, between string, results []trajectory.ToolResult) []trajectory.Message {
	parts := make([]string, len(results))
	for i, r := range results {
		parts[i] = before + r.Observation + after
	}
	return []trajectory.Message{trajectory.Text(role, strings.Join(parts, between))}
}

// answered is the answer of a completion without a call: the body of <answer>…</answer>, or with whole the text itself.
func answered(text string, whole bool) Parsed {
	if _, after, found := strings.Cut(text, "<"+answerTag+">"); found {
		answer, _, closed := strings.Cut(after, "</"+answerTag+">")
		if !closed {
			return Parsed{Errors: []string{"the answer is not closed; write <answer>...</answer>"}}
		}
		return Parsed{Answer: strings.TrimSpace(answer), HasAnswer: true}
	}
	if text = strings.TrimSpace(text); text != "" && whole {
		return Parsed{Answer: text, HasAnswer: true}
	}
	return Parsed{}
}
