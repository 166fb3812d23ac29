package serve

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Each parser finds the calls of its form, whole and in a stream that cuts tokens of one byte, where the tokens that begin a call are special.
func TestToolParsers(t *testing.T) {
	const weather = `"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}}]`
	for name, c := range map[string]struct {
		parser, text string
		want         said
	}{
		"llama":             {"llama3_json", `<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "clock", "parameters": {}}`, said{"", [][2]string{{"weather", `{"city": "Rome"}`}, {"clock", "{}"}}, "tool_calls"}},
		"llama 4":           {"llama4_json", `{"name": "clock", "parameters": {}}`, said{"", [][2]string{{"clock", "{}"}}, "tool_calls"}},
		"llama, no call":    {"llama3_json", `{"answer": 5}`, said{`{"answer": 5}`, nil, "stop"}},
		"mistral's list":    {"mistral", `Sure.[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Zürich"}}]`, said{"Sure.", [][2]string{{"weather", `{"city": "Zürich"}`}}, "tool_calls"}},
		"mistral's names":   {"mistral", `[TOOL_CALLS]weather[ARGS]{"days": 2}[TOOL_CALLS]clock[ARGS]{}`, said{"", [][2]string{{"weather", `{"days": 2}`}, {"clock", "{}"}}, "tool_calls"}},
		"qwen":              {"qwen3_coder", "Look:\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>", said{"Look:", [][2]string{{"weather", `{"city": "Rome", "days": 2}`}}, "tool_calls"}},
		"qwen's other name": {"qwen3_xml", "<function=weather><parameter=days>2</parameter></function>", said{"", [][2]string{{"weather", `{"days": 2}`}}, "tool_calls"}},
		"thoughts":          {"hermes", `<think><tool_call>{"name":"a"}</tool_call></think><tool_call>{"name":"clock"}</tool_call>`, said{`<think><tool_call>{"name":"a"}</tool_call></think>`, [][2]string{{"clock", "{}"}}, "tool_calls"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, scripted.Options{Respond: says(c.text)}, func(o *Options) { o.ToolParser = c.parser })
			require.Equal(t, c.want, h.saidWhole(weather))
			require.Equal(t, c.want, h.saidStream(weather))
		})
	}
}

// shout is a format of a program's own: CALL NAME!
type shout struct{ agents.Format }

func (shout) Parse(_ context.Context, completion string) (agents.Parsed, error) {
	if name, ok := strings.CutPrefix(completion, "CALL "); ok {
		return agents.Parsed{Calls: []trajectory.ToolCall{{Name: strings.TrimSuffix(name, "!"), Arguments: []byte("{}")}}}, nil
	}
	return agents.Parsed{Answer: completion, HasAnswer: true}, nil
}

// A format that a program registers is served under the parser name that it declares.
func TestToolParserOfAProgram(t *testing.T) {
	known := agents.NewRegistry()
	require.NoError(t, known.AddFormat(agents.FormatSpec{
		Name: "shout", Parsers: []string{"shouting"}, New: func([]tools.Spec, agents.FormatOptions) (agents.Format, error) { return shout{}, nil },
	}))
	h := start(t, scripted.Options{Respond: says("CALL clock!")}, func(o *Options) { o.Agents, o.ToolParser = known, "shouting" })
	const clock = `"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"clock"}}]`
	want := said{"", [][2]string{{"clock", "{}"}}, "tool_calls"}
	require.Equal(t, want, h.saidWhole(clock))
	require.Equal(t, want, h.saidStream(clock))
	_, err := New(Options{Engine: scripted.New(scripted.Options{}), Tokenizer: letters{}, Models: []string{"m"}, Vocab: vocabulary, Agents: known, ToolParser: "shout"})
	require.EqualError(t, err, `serve: there is no tool parser "shout"; allowed: hermes, llama3_json, llama4_json, mistral, qwen3_coder, qwen3_json, qwen3_xml, shouting`)
}

// Special tokens that begin no call stay out of the text, and without tools all do.
func TestSpecialTokensThatBeginCalls(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("a<s>b[TOOL_CALLS]c")}, func(o *Options) { o.ToolParser = "mistral" })
	const user = `"messages":[{"role":"user","content":"x"}]`
	require.Equal(t, "abc", h.saidWhole(user).Content)
	require.Equal(t, "ab[TOOL_CALLS]c", h.saidWhole(user+`,"tools":[{"type":"function","function":{"name":"f"}}]`).Content)
}

func TestUnknownToolParser(t *testing.T) {
	_, err := New(Options{Engine: scripted.New(scripted.Options{}), Tokenizer: letters{}, Models: []string{"m"}, Vocab: vocabulary, ToolParser: "x"})
	require.EqualError(t, err, `serve: there is no tool parser "x"; allowed: hermes, llama3_json, llama4_json, mistral, qwen3_coder, qwen3_json, qwen3_xml`)
}

// thinking is a template that opens a thought itself.
type thinking struct{ lines }

func (r thinking) Prompt(messages []trajectory.Message, tools []json.RawMessage, addPrompt bool) ([]int32, string, error) {
	ids, text, err := r.lines.Prompt(messages, tools, addPrompt)
	if addPrompt {
		ids, text = append(ids, letters{}.Encode("<think>\n")...), text+"<think>\n"
	}
	return ids, text, err
}

// Where the prompt opened a thought, drafts of calls in it are content, whole and streamed.
func TestAThoughtThatThePromptOpened(t *testing.T) {
	const draft = `<tool_call>{"name":"a"}</tool_call>`
	for text, want := range map[string]said{
		draft + " hm": {draft + " hm", nil, "stop"},
		draft + `</think><tool_call>{"name":"clock"}</tool_call>`: {draft + "</think>", [][2]string{{"clock", "{}"}}, "tool_calls"},
		"</think>\n\n<tool_call>{\"name\":\"clock\"}</tool_call>": {"</think>", [][2]string{{"clock", "{}"}}, "tool_calls"},
	} {
		h := start(t, scripted.Options{Respond: says(text)}, func(o *Options) { o.Renderer = thinking{} })
		require.Equal(t, want, h.saidWhole(user+","+weather), text)
		require.Equal(t, want, h.saidStream(user+","+weather), text)
		plain := start(t, scripted.Options{Respond: says(draft)}, nil)
		require.Len(t, plain.saidWhole(user+","+weather).Calls, 1, "no thought is open")
	}
}

// Parameters that are null, as some clients write those of a tool without any, are none where a call is required.
func TestARequiredCallWhoseParametersAreNull(t *testing.T) {
	registry := agents.NewRegistry()
	c := &conversation{tools: []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"now","parameters":null}}`)}}
	for _, parser := range []string{"hermes", "mistral", "llama3_json", "qwen3_coder"} {
		f, err := c.format(callParser{registry, parser})
		require.NoError(t, err)
		_, err = f.(agents.Required).Calls(false)
		require.NoError(t, err, parser)
	}
}
