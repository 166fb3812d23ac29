package agents

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// allFormats are all formats, each for tools that it can call.
func allFormats(t testing.TB) map[string]Format {
	t.Helper()
	out := map[string]Format{}
	for name, declared := range NewRegistry().formats {
		specs := testSpecs()
		if declared.OneTool {
			specs = specs[:1]
		}
		f, err := NewFormat(name, specs, FormatOptions{})
		require.NoError(t, err)
		out[name] = f
	}
	return out
}

// completions are written in every format, right and wrong.
var completions = []string{
	"", " ", "It is 936.", "1 < 2 > 0", "<", "[", "{", "\n\n", "é <", "a\nb\n",
	"<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1+2\"}}\n</tool_call>",
	`x <tool_call>{"name":"a","arguments":{}}</tool_call>` + "\n" + `<tool_call>{"name":"b"}</tool_call> y`,
	`<tool_call>{"name":"a","arguments":{"s":"</tool_call>"}}</tool_call>`, `<tool_call>{"name":"a"} x</tool_call><tool_call>{"name":"b"}</tool_call>`,
	`<tool_call>b</tool_call> <tool_call>{"name":"a"}`, `<tool_call>{"name":"a","arg`, "1+2</tool_call>", "<tool_call>",
	"<calculator>347 + 589</calculator>", "I add. <calculator> 1+2\n</calculator> and then", "<answer>1</answer><calculator>1</calculator>",
	"<answer><calculator>1</calculator></answer>", "<answer>1</answer><answer><calculator>1</calculator></answer>", "</answer><answer><calculator>1</calculator></answer>",
	"<answer><calculator>1</calculator>", "<calculator>1", "<calculater>1</calculater>", `<weather>{"city": "Rome", "days": 2}</weather>`, "<weather>Rome</weather>x",
	`{"name": "calculator", "parameters": {"expression": "1+2"}}`, `<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "arguments": {"x": "};{"}}`,
	`Here: {"name": "a", "parameters": {"x": {"y": [1, {"z": "}"}]}}} and {"name": "John"}`, `{"a": 1}`, `{"name": "roll"}`, `{"name": "a", "parameters": 5}`, `{"name" "a"} {"name": "b", "parameters": {}}`,
	`{x} {"name": "b", "parameters": {}};`, `<|python_tag|>print(1)`, `<|python_tag|>`, `{"name": "a", "parameters": {`, `; ; {"name": "a", "parameters": {}} ;`,
	`[TOOL_CALLS] [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": "{\"y\": 2}"}]`, `ok[TOOL_CALLS]calculator[ARGS]{"expression": "1"}[TOOL_CALLS]b{"x": []} bye`,
	`[TOOL_CALLS][TOOL_CALLS] {"name": "a", "arguments": {}}`, `[TOOL_CALLS]a[CALL_ID]abc[ARGS]{}`, `[TOOL_CALLS]`, `[TOOL_CALLS]a b{}`, `[TOOL_CALLS][ARGS]{}`, `[TOOL_CALLS][1]`, `[TOOL_CALLS][]`, `[TOOL_CALLS]a[ARGS]{"x"`, `[TOOL_CALLS`,
	"<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
	"<function=roll></function>", "a<tool_call><function=a><parameter=x>1<parameter=y> 2 </parameter></function><function=b></function></tool_call>b",
	"<tool_call>x</tool_call><function=b></function>", "<function=a<parameter=x>1</parameter></function>", "<tool_call><function=a><parameter=x>1", "<function=>x</function>", "<function=a>text</function>",
	"Thought: I add.\nAction: calculator\nAction Input: {\"expression\": \"1+2\"}", "Thought: x\nAction: calculator\nAction Input: 1+2\nObservation: 4\nFinal Answer: 4", "Action: weather\nAction Input: Rome\n",
	"Final Answer: 936\n", "Thought: done\nAnswer: 9\nAction: calculator\nAction Input: 1", "Action: roll\nAction Input:", "Action: calculator\nThought: hm", "Input: 3", "Thought: only", "see Action: calculator\n Action: calculator\n  Input: \"1\"\n\nObserv",
	"Add.\n```python\nprint(1+2)\n```\nThen.", "```py\nx = 1\n\nx\n```", "```json\n{}\n```\n```python\nx\n```", "```python\nx", "```python\n```", "```python x\n```", "``` \nx\n```", "<answer>3</answer> ```python\ny\n```\n```python\nz\n```",
	"<search> who? </search>", "<answer> Rome </answer><search>x</search>", "<search>a<answer>b</answer>", "<search>a</search> <information>", "<answer>open <search>a</search>", "<think>hm</think><search>a</search>",
	"<action>go north</action> x", "go north\ngo south", "<think>\nleft?</think>\n\n go left ", "<action> </action>", "text <action>open",
	"<think><calculator>1</calculator></think><answer>2</answer>", `<think>{"name": "a", "parameters": {}}</think>{"name": "a", "parameters": {}}`, "<think>Action: x\n</think>Action: calculator\nAction Input: 1", " <think>open <calculator>1</calculator>", "<thinking><calculator>1</calculator>",
	`<tool_call>{"name": "calculator", "arguments": {"expression": "close it with </think>"}}</tool_call>`, "<calculator>close it with </think></calculator>", `<tool_call>{"name": "a"}</tool_call></think>`,
	"The tag </think> ends a thought.", "</think>", `{"name": "a", "parameters": {}}</think>{"name": "b", "parameters": {}}`, "Action: calculator\nAction Input: </think>", "<search></think></search>",
	"Sure. <think>try <calculator>1</calculator>, <search>x</search> or <action>x</action></think><answer>2</answer>", "Sure. <think>try it</think>5", "Sure.\n<think>Action: x\nAction Input: 1\n</think>\nAction: calculator\nAction Input: 1",
	"Sure. <think>\n<tool_call>\n{\"name\": \"a\"}\n</tool_call> or <function=roll></function>\n</think>\n<tool_call>\n{\"name\": \"b\"}\n</tool_call><function=roll></function>", `Hm <think>{"name": "a", "parameters": {}}</think>{"name": "b", "parameters": {}}`,
	`Hm <think>[TOOL_CALLS]a[ARGS]{}</think>[TOOL_CALLS]b[ARGS]{}`, "Hm <think>\n```python\nx\n```\n</think>\n```python\ny\n```", "Sure. <think>open <calculator>1</calculator> <search>a</search> <action>b</action>", "a</think> b <think>c <calculator>1</calculator></think><calculator>2</calculator>",
	"<calculator><think>1</think></calculator>", `<tool_call>{"name": "a", "arguments": {"x": "<think>1</think>"}}</tool_call>5`, `<tool_call>a <think></tool_call></think>5`, "<answer>a <think>b</think> c</answer>", "<think>a</think>\nb\n<think>c</think>\nd", "Sure.\n<think>a</think>\nb\n<think>c</think>\nd", "<think>a</think>b <think><calculator>1</calculator></think>",
}

func joined(pieces []Piece) (content string, calls []trajectory.ToolCall) {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Content)
		if p.Call != nil {
			calls = append(calls, *p.Call)
		}
	}
	return b.String(), calls
}

// begins tells that calls begin with those of first.
func begins(calls, first []trajectory.ToolCall) bool {
	return len(first) <= len(calls) && slices.EqualFunc(first, calls[:len(first)], func(a, b trajectory.ToolCall) bool { return reflect.DeepEqual(a, b) })
}

// checkSplits holds what a splitter says of a completion in pieces against what it says of the whole, and that against Parse.
func checkSplits(t *testing.T, f Format, text string, cuts ...int) {
	t.Helper()
	whole := NewSplitter(f, false)
	content, calls := joined(append(whole.Push(text), whole.End()...))
	parsed := parse(t, f, text)
	require.Equal(t, parsed.Calls, calls, "%q", text)
	if len(calls) == 0 {
		require.Equal(t, text, content)
	}
	pieces := NewSplitter(f, false)
	var got []Piece
	at := 0
	for _, cut := range append(cuts, len(text)) {
		got = append(got, pieces.Push(text[at:cut])...)
		at = cut
		_, early := joined(got)
		require.True(t, begins(calls, early), "%q of %q tells %v", text[:at], text, early)
	}
	again, more := joined(append(got, pieces.End()...))
	require.Equal(t, content, again, "%q cut at %v", text, cuts)
	require.Equal(t, calls, more, "%q cut at %v", text, cuts)
	require.Equal(t, len(calls), pieces.Calls())
}

// However a completion is cut in two, and into its bytes, the splitter tells the same, and nothing that it has to take back.
func TestSplitsOfEveryFormat(t *testing.T) {
	for name, f := range allFormats(t) {
		t.Run(name, func(t *testing.T) {
			for _, text := range completions {
				var bytes []int
				for i := range len(text) {
					checkSplits(t, f, text, i)
					bytes = append(bytes, i)
				}
				checkSplits(t, f, text, bytes...)
			}
		})
	}
}

// What follows a completion does not change the calls that were told without its end.
func TestWhatFollowsChangesNoCall(t *testing.T) {
	for name, f := range allFormats(t) {
		t.Run(name, func(t *testing.T) {
			for _, text := range completions {
				s := NewSplitter(f, false)
				_, told := joined(s.Push(text))
				for _, more := range completions {
					s := NewSplitter(f, false)
					_, calls := joined(append(s.Push(text+more), s.End()...))
					require.True(t, begins(calls, told), "%q + %q", text, more)
				}
			}
		})
	}
}

func TestSplitterContent(t *testing.T) {
	for name, c := range map[string]struct {
		format, text, content string
		calls                 []trajectory.ToolCall
		single                bool
	}{
		"white space around calls":    {"hermes", "Hi \n<tool_call>{\"name\":\"a\"}</tool_call>\n<tool_call>{\"name\":\"b\"}</tool_call> there ", "Hithere", calls("a", "{}", "b", "{}"), false},
		"a single call":               {"hermes", `<tool_call>{"name":"a"}</tool_call><tool_call>{"name":"b"}</tool_call>`, "", calls("a", "{}"), true},
		"what cannot be read":         {"hermes", "a <tool_call>b</tool_call>\n", "a <tool_call>b</tool_call>\n", nil, false},
		"separators are no content":   {"llama3_json", `<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}`, "", calls("a", "{}", "b", "{}"), false},
		"other JSON is content":       {"llama3_json", `{"a": {"b": "x"}} `, `{"a": {"b": "x"}} `, nil, false},
		"content around Mistral's":    {"mistral", `ok [TOOL_CALLS]a[ARGS]{"x":1}`, "ok", calls("a", `{"x":1}`), false},
		"values by the schema":        {"qwen3_coder", "Look.\n<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>", "Look.", calls("weather", `{"days": 2}`), false},
		"nothing behind the call":     {"react", "Thought: t\nAction: calculator\nAction Input: 1\nObservation: 1", "Thought: t", calls("calculator", `{"expression":"1"}`), false},
		"thinking is content":         {"hermes", `<think><tool_call>{"name":"a"}</tool_call></think> <tool_call>{"name":"b"}</tool_call>`, `<think><tool_call>{"name":"a"}</tool_call></think>`, calls("b", "{}"), false},
		"thinking behind words":       {"hermes", `Sure. <think><tool_call>{"name":"a"}</tool_call></think> <tool_call>{"name":"b"}</tool_call>`, `Sure. <think><tool_call>{"name":"a"}</tool_call></think>`, calls("b", "{}"), false},
		"thinking that does not end":  {"hermes", `<think><tool_call>{"name":"a"}</tool_call>`, `<think><tool_call>{"name":"a"}</tool_call>`, nil, false},
		"a tag that is not a thought": {"hermes", `<thing><tool_call>{"name":"a"}</tool_call>`, `<thing>`, calls("a", "{}"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSplitter(allFormats(t)[c.format], c.single)
			content, calls := joined(append(s.Push(c.text), s.End()...))
			require.Equal(t, c.content, content)
			require.Equal(t, c.calls, calls)
		})
	}
}

// Where the prompt opened a thought, a splitter tells what ParseBehind reads, however the completion is cut, and no draft.
func TestSplitterInAThoughtThatThePromptOpened(t *testing.T) {
	const prompt = "<|im_start|>assistant\n<think>\n"
	require.True(t, OpensThought(prompt))
	require.False(t, OpensThought("<|im_start|>assistant\n<think>\n\n</think>\n\n"))
	require.False(t, OpensThought("say <think> there<|im_end|>\n<|im_start|>assistant\n"))
	for name, f := range allFormats(t) {
		t.Run(name, func(t *testing.T) {
			for _, draft := range completions {
				draft = strings.ReplaceAll(strings.ReplaceAll(draft, thinkClose, ""), thinkOpen, "")
				parsed, err := ParseBehind(t.Context(), f, prompt, draft)
				require.NoError(t, err)
				require.Equal(t, Parsed{}, parsed, "%q", draft)
				for _, text := range []string{draft, draft + thinkClose + draft} {
					parsed, err := ParseBehind(t.Context(), f, prompt, text)
					require.NoError(t, err)
					whole := NewSplitter(f, false)
					whole.InThought()
					content, calls := joined(append(whole.Push(text), whole.End()...))
					require.Equal(t, parsed.Calls, calls, "%q", text)
					for cut := range len(text) {
						s := NewSplitter(f, false)
						s.InThought()
						got := append(s.Push(text[:cut]), s.Push(text[cut:])...)
						again, more := joined(append(got, s.End()...))
						require.Equal(t, content, again, "%q cut at %d", text, cut)
						require.Equal(t, calls, more, "%q cut at %d", text, cut)
					}
				}
			}
		})
	}
}

// A tag that ends no thought is text like any other.
func TestTheEndOfAThoughtThatNobodyOpened(t *testing.T) {
	const call, behind, answer = `<tool_call>{"name": "calculator", "arguments": {"expression": "close it with </think>"}}</tool_call>`,
		`<tool_call>{"name": "roll"}</tool_call></think>`, "The tag </think> ends a thought."
	formats := allFormats(t)
	for text, want := range map[string]Parsed{
		call:   {Calls: calls("calculator", `{"expression": "close it with </think>"}`)},
		behind: {Calls: calls("roll", "{}")},
		answer: {Answer: answer, HasAnswer: true},
	} {
		require.Equal(t, want, parse(t, formats["hermes"], text))
	}
	for name, f := range formats {
		p := parse(t, f, answer)
		require.True(t, !p.HasAnswer || p.Answer == answer, "%s: %q", name, p.Answer)
	}
}

// A completion may open its thought behind a few words, where drafts do not count either, but not within a call or an answer.
func TestThoughtBehindWords(t *testing.T) {
	answer := func(text string) Parsed { return Parsed{Answer: text, HasAnswer: true} }
	formats := allFormats(t)
	for name, c := range map[string]struct {
		format, text string
		want         Parsed
	}{
		"tags":             {"tags", "Sure. <think>try <calculator>1</calculator> …</think><answer>2</answer>", answer("2")},
		"search_r1":        {"search_r1", "Sure. <think>try <search>x</search> …</think><answer>2</answer>", answer("2")},
		"hermes":           {"hermes", `Sure. <think>try <tool_call>{"name": "a"}</tool_call> …</think><answer>2</answer>`, answer("2")},
		"llama3_json":      {"llama3_json", `Sure. <think>try {"name": "a", "parameters": {}} …</think><answer>2</answer>`, answer("2")},
		"qwen3_coder":      {"qwen3_coder", `Sure. <think>try <tool_call>x</tool_call> …</think><answer>2</answer>`, answer("2")},
		"mistral":          {"mistral", "Sure. <think>try it</think>5", answer("5")},
		"react":            {"react", "Sure. <think>\nFinal Answer: 4\n</think>\nFinal Answer: 5", answer("5")},
		"fenced":           {"fenced", "Sure. <think>\n```python\nx\n```\n</think><answer>2</answer>", answer("2")},
		"action":           {"action", "Sure.\n<think>go <action>left</action></think>\n<action>right</action>", called("calculator", `{"expression":"right"}`)},
		"the first line":   {"action", "Sure.\n<think>left?</think>\nright\nnow", called("calculator", `{"expression":"right"}`)},
		"a call behind it": {"hermes", `Sure. <think>a</think> <tool_call>{"name": "a"}</tool_call>`, called("a", "{}")},
		"the answer":       {"hermes", "Sure. <think>try it</think>5", answer("5")},
		"no end":           {"tags", "The tag <think> begins it. <calculator>1</calculator>", called("calculator", `{"expression":"1"}`)},
		"an argument":      {"hermes", `<tool_call>{"name": "a", "arguments": {"x": "<think>1</think>"}}</tool_call>`, called("a", `{"x": "<think>1</think>"}`)},
		"behind a call":    {"tags", "<calculator>1</calculator> <think>a</think><answer>2</answer>", called("calculator", `{"expression":"1"}`)},
		"within an answer": {"tags", "<answer>It is <think>a</think>.</answer>", answer("It is <think>a</think>.")},
		"a second thought": {"hermes", "<think>a</think>It is <think>b</think>.", answer("It is <think>b</think>.")},
		"behind a line":    {"action", "<think>a</think>\nleft\n<think>b</think>\nright", called("calculator", `{"expression":"left"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, parse(t, formats[c.format], c.text))
		})
	}
}

// Where nobody saw the prompt, it may have opened the thought that ends.
func TestParseUnseen(t *testing.T) {
	f := allFormats(t)["hermes"]
	for text, want := range map[string]Parsed{
		`hm <tool_call>{"name": "a"}</tool_call></think>` + "\n\n5": {Answer: "5", HasAnswer: true},
		`hm</think><tool_call>{"name": "roll"}</tool_call>`:         {Calls: calls("roll", "{}")},
		`<think>hm</think><tool_call>{"name": "roll"}</tool_call>`:  {Calls: calls("roll", "{}")},
		`<think>hm</think>It is </think>.`:                          {Answer: "It is </think>.", HasAnswer: true},
		`<tool_call>{"name": "roll"}</tool_call>`:                   {Calls: calls("roll", "{}")},
		"5":        {Answer: "5", HasAnswer: true},
		"<think>5": {},
	} {
		got, err := ParseUnseen(t.Context(), f, text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

// A call is told at once, and content as soon as it cannot become one.
func TestSplitterDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct{ format, text, content string }{
		"hermes at its closing tag": {"hermes", `<tool_call>{"name":"a"}</tool_call>`, ""},
		"hermes, plain text":        {"hermes", "Hello <tool", "Hello"},
		"llama at its last brace":   {"llama3_json", `{"name": "a", "parameters": {}}`, ""},
		"mistral's list":            {"mistral", `[TOOL_CALLS][{"name":"a","arguments":{}}]`, ""},
		"mistral's name":            {"mistral", `[TOOL_CALLS]a[ARGS]{}`, ""},
		"qwen":                      {"qwen3_coder", "<tool_call><function=a></function></tool_call>", ""},
		"a tag":                     {"tags", "1 < 2 <roll></roll>", "1 < 2"},
		"react":                     {"react", "x\nAction: roll\nAction Input: {}\nObservation:", "x"},
		"a block":                   {"fenced", "Run:\n```python\nx\n```", "Run:"},
		"a search":                  {"search_r1", "a<search>x</search>", "a"},
		"an action":                 {"action", "<action>x</action>", ""},
		"a thought behind words":    {"hermes", `Sure. <think>a</think> <tool_call>{"name":"a"}</tool_call>`, "Sure. <think>a</think>"},
	} {
		t.Run(name, func(t *testing.T) {
			content, calls := joined(NewSplitter(allFormats(t)[c.format], false).Push(c.text))
			require.Equal(t, c.content, content)
			require.Len(t, calls, map[bool]int{true: 0, false: 1}[name == "hermes, plain text"])
		})
	}
}

// wordy is somebody's own format, which reads whole completions.
type wordy struct{ Format }

func (wordy) Parse(_ context.Context, completion string) (Parsed, error) {
	if name, ok := strings.CutPrefix(completion, "call "); ok {
		return Parsed{Calls: calls(name, "{}")}, nil
	}
	return Parsed{}, nil
}

func TestSplitterOfAFormatThatReadsWholeCompletions(t *testing.T) {
	for _, text := range []string{"call roll", "no call", ""} {
		for i := range len(text) {
			checkSplits(t, wordy{}, text, i)
		}
	}
}
