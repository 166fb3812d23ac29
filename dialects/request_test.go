package dialects

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func text(role, s string) trajectory.Message { return trajectory.Text(role, s) }

func call(id, name, arguments string) trajectory.ToolCall {
	return trajectory.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)}
}

func parse(t testing.TB, d Dialect, body string) *Request {
	q, err := d.Parse(http.Header{}, []byte(body))
	require.NoError(t, err)
	return q
}

// TestConversations holds what the recorded requests do not: the same conversation in all the ways in which it may be written.
func TestConversations(t *testing.T) {
	image := trajectory.Part{Type: "image", Image: "data:image/png;base64,AAAA"}
	for name, c := range map[string]struct {
		d    Dialect
		body string
		want []trajectory.Message
	}{
		"chat: a text, a list, null and nothing": {
			Chat(), `{"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"user","content":"","name":"ann"},{"role":"assistant","content":null}]}`,
			[]trajectory.Message{text("system", "a\nb"), {Role: "user", Name: "ann"}, {Role: "assistant"}},
		},
		"chat: calls, and results as a list": {
			Chat(), `{"messages":[{"role":"assistant","content":"","refusal":null,"function_call":null,"tool_calls":[{"id":"c","type":"function","index":0,"function":{"name":"f","arguments":"{ \"b\" :23}","parsed_arguments":null}},{"function":{"name":"g","arguments":""}},{"function":{"name":"h","arguments":{"x":1}}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"391"}]}]}`,
			[]trajectory.Message{
				{Role: "assistant", ToolCalls: []trajectory.ToolCall{call("c", "f", `{ "b" :23}`), call("", "g", `{}`), call("", "h", `{"x":1}`)}},
				{Role: "tool", ToolCallID: "c", Content: []trajectory.Part{{Type: "text", Text: "391"}}},
			},
		},
		"chat: of a repeated key the last counts, as for the digest": {
			Chat(), `{"messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]}`,
			[]trajectory.Message{text("user", "b")},
		},
		"chat: arguments that are no JSON": {
			Chat(), `{"messages":[{"role":"assistant","reasoning_content":"why","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\": 17, \"b\": "}}]}]}`,
			[]trajectory.Message{{Role: "assistant", Reasoning: "why", ToolCalls: []trajectory.ToolCall{call("c", "f", `"{\"a\": 17, \"b\": "`)}}},
		},
		"chat: an image": {
			Chat(), `{"messages":[{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}}]}]}`,
			[]trajectory.Message{{Role: "user", Content: []trajectory.Part{{Type: "text", Text: "what is it?"}, image}}},
		},
		"chat: a refusal, and the calls of before tools": {
			Chat(), `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"refusal":"I will not."},{"role":"assistant","content":"Yes.","refusal":"no","function_call":null},
				{"role":"assistant","content":null,"refusal":null,"function_call":{"name":"add","arguments":"{\"a\": 1}"}},{"role":"function","name":"add","content":"2"}]}`,
			[]trajectory.Message{
				text("user", "q"), text("assistant", "I will not."), text("assistant", "Yes."),
				{Role: "assistant", ToolCalls: []trajectory.ToolCall{call("", "add", `{"a": 1}`)}},
				{Role: "tool", Name: "add", Content: []trajectory.Part{{Type: "text", Text: "2"}}},
			},
		},
		"responses: a text": {
			Responses(), `{"input":"hello","instructions":"be brief"}`,
			[]trajectory.Message{text("system", "be brief"), text("user", "hello")},
		},
		"responses: two replies in a row, and a call into a namespace": {
			Responses(), `{"tools":[{"type":"web_search"},{"type":"function","name":"wait"},{"type":"namespace","name":"agents","tools":[{"type":"function","name":"wait"},{"type":"function","name":"spawn"}]}],
				"input":[{"role":"assistant","content":"one"},{"role":"assistant","content":[{"type":"output_text","text":"two"}]},{"type":"function_call","call_id":"c","name":"wait","namespace":"agents","arguments":"{}"},
				{"type":"message","role":"assistant","content":[{"type":"output_text","text":", three"}]},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"done"}]},
				{"type":"web_search_call","id":"ws"},{"type":"reasoning","summary":[],"encrypted_content":"` + seal("hidden") + `"},{"type":"function_call","call_id":"d","name":"spawn","namespace":"agents","arguments":"{"}]}`,
			[]trajectory.Message{
				text("assistant", "one"),
				{Role: "assistant", Content: []trajectory.Part{{Type: "text", Text: "two, three"}}, ToolCalls: []trajectory.ToolCall{call("c", "agents__wait", `{}`)}},
				{Role: "tool", ToolCallID: "c", Content: []trajectory.Part{{Type: "text", Text: "done"}}},
				{Role: "assistant", Reasoning: "hidden", ToolCalls: []trajectory.ToolCall{call("d", "spawn", `"{"`)}},
			},
		},
		"responses: reasoning of another server": {
			Responses(), `{"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"long"}],"encrypted_content":"agentfly1.AAAA"},{"type":"reasoning","summary":[],"encrypted_content":"gAAAA"},{"role":"user","content":"x"}]}`,
			[]trajectory.Message{{Role: "assistant", Reasoning: "long"}, text("user", "x")},
		},
		"messages: the billing line, as a block and within a text": {
			Messages(), `{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=abc;"},{"type":"text","text":"You are.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"x"},{"role":"system","content":"x-anthropic-billing-header: cch=1;\n\nMore."}]}`,
			[]trajectory.Message{text("system", "You are."), text("user", "x"), text("system", "More.")},
		},
		"messages: the billing line as a later block": {
			Messages(), `{"system":[{"type":"text","text":"You are."},{"type":"text","text":"x-anthropic-billing-header: cch=abc;"},{"type":"text","text":"More."}],"messages":[{"role":"user","content":"x"}]}`,
			[]trajectory.Message{text("system", "You are.\nMore."), text("user", "x")},
		},
		"messages: nothing but the billing line": {
			Messages(), `{"system":"x-anthropic-billing-header: cc_version=2;","messages":[{"role":"user","content":"x"}]}`,
			[]trajectory.Message{text("user", "x")},
		},
		"messages: an error that says nothing, and a result that says nothing": {
			Messages(), `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true},{"type":"tool_result","tool_use_id":"u","is_error":true,"content":""},
				{"type":"tool_result","tool_use_id":"v","is_error":false,"content":[]},{"type":"tool_result","tool_use_id":"w","is_error":true,"content":"gone"}]}]}`,
			[]trajectory.Message{
				{Role: "tool", ToolCallID: "t", Content: []trajectory.Part{{Type: "text", Text: "error"}}},
				{Role: "tool", ToolCallID: "u", Content: []trajectory.Part{{Type: "text", Text: "error"}}},
				{Role: "tool", ToolCallID: "v"},
				{Role: "tool", ToolCallID: "w", Content: []trajectory.Part{{Type: "text", Text: "gone"}}},
			},
		},
		"messages: results, texts and an image between them": {
			Messages(), `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"` + seal("why") + `"},{"type":"text","text":"I "},{"type":"tool_use","id":"t","name":"f","input":{"a": 1}},{"type":"text","text":"go"}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"bad"},{"type":"tool_result","tool_use_id":"u","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"text","text":"so?"}]},{"role":"user","content":[]}]}`,
			[]trajectory.Message{
				{Role: "assistant", Reasoning: "why", Content: []trajectory.Part{{Type: "text", Text: "I go"}}, ToolCalls: []trajectory.ToolCall{call("t", "f", `{"a": 1}`)}},
				{Role: "tool", ToolCallID: "t", Content: []trajectory.Part{{Type: "text", Text: "bad"}}},
				{Role: "tool", ToolCallID: "u", Content: []trajectory.Part{{Type: "text", Text: "a"}, image}},
				text("user", "so?"),
				{Role: "user"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, parse(t, c.d, c.body).Messages) })
	}
}

// TestCallIntoNamespace: a call of a tool that came in a namespace names it, streamed or not.
func TestCallIntoNamespace(t *testing.T) {
	q := parse(t, Responses(), `{"input":"x","tools":[{"type":"function","name":"wait"},{"type":"namespace","name":"agents","tools":[{"type":"function","name":"wait"},{"type":"function","name":"spawn","parameters":{"type":"object"}},{"type":"custom","name":"left out"}]}]}`)
	require.Equal(t, []string{
		`{"type":"function","function":{"name":"wait"}}`, `{"type":"function","function":{"name":"agents__wait"}}`,
		`{"type":"function","function":{"name":"spawn","parameters":{"type":"object"}}}`,
	}, strs(q.Tools))
	reply := Reply{ID: "1", Finish: FinishCalls, Calls: []trajectory.ToolCall{call("a", "wait", `{}`), call("b", "agents__wait", `{}`), call("c", "spawn", `{}`)}}
	want := []heardCall{{"a", "wait", "", "{}"}, {"b", "wait", "agents", "{}"}, {"c", "spawn", "agents", "{}"}}
	body, err := Responses().Whole(q, reply)
	require.NoError(t, err)
	require.Equal(t, want, hear(t, Responses(), string(body), false).Calls)
	require.Equal(t, want, hear(t, Responses(), stream(t, Responses(), q, reply), true).Calls)
}

// A function has its own name wherever it stands; tools of a namespace that have it too are named with their namespace. The order stays.
func TestAFunctionBehindANamespaceThatHasItsName(t *testing.T) {
	q := parse(t, Responses(), `{"input":[{"type":"function_call","call_id":"a","namespace":"fs","name":"read","arguments":"{}"},{"type":"function_call","call_id":"b","name":"read","arguments":"{}"}],
		"tools":[{"type":"namespace","name":"fs","tools":[{"type":"function","name":"read"},{"type":"function","name":"list"}]},{"type":"function","name":"read"},{"type":"namespace","name":"db","tools":[{"type":"function","name":"list"}]}]}`)
	require.Equal(t, []string{
		`{"type":"function","function":{"name":"fs__read"}}`, `{"type":"function","function":{"name":"list"}}`, `{"type":"function","function":{"name":"read"}}`,
		`{"type":"function","function":{"name":"db__list"}}`,
	}, strs(q.Tools))
	require.Equal(t, []trajectory.ToolCall{call("a", "fs__read", `{}`), call("b", "read", `{}`)}, q.Messages[0].ToolCalls)
	reply := Reply{ID: "1", Finish: FinishCalls, Calls: []trajectory.ToolCall{call("a", "fs__read", `{}`), call("b", "read", `{}`), call("c", "db__list", `{}`)}}
	body, err := Responses().Whole(q, reply)
	require.NoError(t, err)
	require.Equal(t, []heardCall{{"a", "read", "fs", "{}"}, {"b", "read", "", "{}"}, {"c", "list", "db", "{}"}}, hear(t, Responses(), string(body), false).Calls)
}

// Tools that run at a vendor's are left out, and so are custom ones, whose input is free text.
func TestToolsThatAreLeftOut(t *testing.T) {
	var tools []string
	for _, kind := range []string{
		"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search",
		"programmatic_tool_calling", "custom",
	} {
		tools = append(tools, `{"type":"`+kind+`","name":"x"}`)
	}
	require.Empty(t, parse(t, Responses(), `{"input":"x","tools":[`+strings.Join(tools, ",")+`]}`).Tools)
}

func strs(raw []json.RawMessage) (out []string) {
	for _, r := range raw {
		out = append(out, string(r))
	}
	return out
}

// TestParameters holds what each dialect calls them.
func TestParameters(t *testing.T) {
	num := func(v int) *int { return &v }
	flo := func(v float64) *float64 { return &v }
	seed := int64(-3)
	tool := json.RawMessage(`{"type":"function","function":{"name":"f"}}`)
	for name, c := range map[string]struct {
		d    Dialect
		body string
		want Request
	}{
		"chat": {
			Chat(), `{"messages":[{"role":"user","content":"x"}],"model":"m","tools":[],"parallel_tool_calls":false,"max_tokens":5,"max_completion_tokens":7,"temperature":0,"top_p":0.5,"top_k":3,"min_p":0.1,"n":2,"seed":-3,"stop":" ",
				"presence_penalty":1,"frequency_penalty":2,"repetition_penalty":1.5,"min_tokens":4,"logprobs":true,"top_logprobs":2,"stream_options":{"include_usage":true},"response_format":{"type":"json_object"},"unknown":{"a":1},"reasoning_effort":"high","logit_bias":{}}`,
			Request{
				Model: "m", Param: "messages", MaxTokens: num(7), Temperature: flo(0), TopP: flo(0.5), TopK: num(3), MinP: flo(0.1), N: 2, Seed: &seed, Stop: []string{" "},
				Presence: 1, Frequency: 2, Repetition: 1.5, MinTokens: 4, Logprobs: true, TopLogprobs: 2, StreamUsage: true, Format: &Schema{Param: "response_format"}, Choice: Choice{Mode: ChoiceAuto},
			},
		},
		"chat: a named tool, a schema": {
			Chat(), `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}},"stop":["a","",null],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}}`,
			Request{Param: "messages", N: 1, Repetition: 1, Parallel: true, Tools: []json.RawMessage{tool}, Choice: Choice{ChoiceNamed, "f"}, Stop: []string{"a"}, Format: &Schema{"response_format", "n", json.RawMessage(`{"type":"object"}`), true}},
		},
		"completions": {
			Completions(), `{"prompt":[[1,2]],"logprobs":0,"stream":true}`,
			Request{Prompt: Prompt{IDs: []int32{1, 2}}, N: 1, Repetition: 1, Parallel: true, MaxTokens: num(16), Logprobs: true, Stream: true, Choice: Choice{Mode: ChoiceAuto}},
		},
		"responses": {
			Responses(), `{"input":"x","max_output_tokens":9,"parallel_tool_calls":false,"store":true,"previous_response_id":null,"tools":[{"type":"function","name":"f","parameters":null,"strict":true}],"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}}`,
			Request{Param: "input", N: 1, Repetition: 1, MaxTokens: num(9), StreamUsage: true, Tools: []json.RawMessage{tool}, Choice: Choice{ChoiceNamed, "f"}, Format: &Schema{"text.format", "n", json.RawMessage(`{"type":"object"}`), false}},
		},
		"responses: logprobs": {
			Responses(), `{"input":"x","top_logprobs":2,"include":["reasoning.encrypted_content","message.output_text.logprobs"]}`,
			Request{Param: "input", N: 1, Repetition: 1, Parallel: true, StreamUsage: true, Choice: Choice{Mode: ChoiceAuto}, Logprobs: true, TopLogprobs: 2},
		},
		"messages": {
			Messages(), `{"messages":[{"role":"user","content":"x"}],"max_tokens":9,"stop_sequences":["a"],"top_k":5,"tools":[{"name":"f"},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"thread":null,"stream":true}`,
			Request{Param: "messages", N: 1, Repetition: 1, MaxTokens: num(9), TopK: num(5), Stop: []string{"a"}, StreamUsage: true, Stream: true, Tools: []json.RawMessage{tool}, Choice: Choice{Mode: ChoiceRequired}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := parse(t, c.d, c.body)
			q.Asked, q.Digest, q.Messages, q.repeats = nil, [32]byte{}, nil, nil
			require.Equal(t, c.want, *q)
		})
	}
}

// TestRefused: what a dialect cannot honour is named.
func TestRefused(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		d                    Dialect
		body, param, message string
	}{
		{Chat(), `[]`, "", "must be a JSON object"},
		{Chat(), `{"messages":`, "", "not JSON"},
		{Chat(), "{\"messages\":\"\xff\"}", "", "UTF-8"},
		{Chat(), `{}`, "messages", "missing or empty"},
		{Chat(), `{"messages":"x"}`, "messages", "a JSON string does not fit, a list is needed"},
		{Chat(), `{"messages":[{"role":"usr","content":"x"}]}`, "messages[0].role", `messages[0].role is "usr", allowed are system, user, assistant, tool, and developer for system (did you mean "user"?)`},
		{Chat(), `{"messages":[{"content":"x"}]}`, "messages[0].role", "messages[0] has no role"},
		{Chat(), `{"messages":[null]}`, "messages[0]", "no object"},
		{Chat(), `{"messages":[{"role":"user","content":7}]}`, "messages[0].content", "must be a text or a list of parts"},
		{Chat(), `{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`, "messages[0].content[0].type", `"input_audio"`},
		{Chat(), `{"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]}`, "messages[0].tool_calls[0].function.name", "no name"},
		{Chat(), `{` + user + `,"max_tokens":0}`, "max_tokens", "at least 1"},
		{Chat(), `{` + user + `,"max_tokens":"9"}`, "max_tokens", "an integer is needed"},
		{Chat(), `{` + user + `,"stop":7}`, "stop", "a list is needed"},
		{Chat(), `{` + user + `,"n":0}`, "n", "at least 1"},
		{Chat(), `{` + user + `,"logit_bias":{"5":1}}`, "logit_bias", "not supported"},
		{Chat(), `{` + user + `,"functions":[{"name":"f"}]}`, "functions", "use tools"},
		{Chat(), `{` + user + `,"continue_final_message":true}`, "continue_final_message", "not supported"},
		{Chat(), `{` + user + `,"add_generation_prompt":false}`, "add_generation_prompt", "not supported"},
		{Chat(), `{` + user + `,"chat_template":"{{ messages }}"}`, "chat_template", "not supported"},
		{Chat(), `{` + user + `,"documents":[{"text":"x"}]}`, "documents", "not supported"},
		{Chat(), `{"messages":[{"role":"assistant","function_call":{"arguments":"{}"}}]}`, "messages[0].function_call.name", "no name"},
		{Chat(), `{` + user + `,"tools":[{"type":"retrieval"}]}`, "tools[0]", "must be"},
		{Chat(), `{` + user + `,"tool_choice":"required"}`, "tool_choice", "no tools"},
		{Chat(), `{` + user + `,"tool_choice":"any"}`, "tool_choice", "allowed are none, auto and required"},
		{Chat(), `{` + user + `,"tools":[{"type":"function","function":{"name":"calculator"}}],"tool_choice":{"type":"function","function":{"name":"calculater"}}}`, "tool_choice", `did you mean "calculator"?`},
		{Chat(), `{` + user + `,"response_format":{"type":"grammar"}}`, "response_format", "allowed are text, json_object and json_schema"},
		{Chat(), `{` + user + `,"response_format":{"type":"json_schema"}}`, "response_format", "no schema"},
		{Chat(), `{` + user + `,"metadata":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, "", "deeper than 256"},
		{Completions(), `{}`, "prompt", "missing"},
		{Completions(), `{"prompt":[]}`, "prompt", "empty"},
		{Completions(), `{"prompt":["a","b"]}`, "prompt", "a list of 2"},
		{Completions(), `{"prompt":[1,null]}`, "prompt", "a list of 2"},
		{Completions(), `{"prompt":"x","echo":true}`, "echo", "not supported"},
		{Completions(), `{"prompt":"x","suffix":"y"}`, "suffix", "not supported"},
		{Responses(), `{"input":"x","previous_response_id":"resp_1"}`, "previous_response_id", "stores no responses; send all earlier items in input"},
		{Responses(), `{"input":[{"type":"item_reference","id":"rs_1"}]}`, "input[0]", "stores no responses"},
		{Responses(), `{"input":[{"type":"computer_call"}]}`, "input[0].type", `"computer_call"`},
		{Responses(), `{"input":[{"role":"usr","content":"x"}]}`, "input[0].role", `"usr"`},
		{Responses(), `{"input":[{"role":"user","content":[{"type":"input_file"}]}]}`, "input[0].content[0].type", `"input_file"`},
		{Responses(), `{}`, "input", "missing"},
		{Responses(), `{"input":[]}`, "input", "empty"},
		{Responses(), `{"input":"x","background":true}`, "background", "not supported"},
		{Responses(), `{"input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]}`, "tools[1]", "two tools"},
		{Responses(), `{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},{"type":"function","name":"f"},{"type":"function","name":"f"}]}]}`, "tools[0].tools[2]", `two tools named "n__f"`},
		{Responses(), `{"input":"x","tools":[{"type":"web_search"},{"type":"local_shell"}]}`, "tools[1].type", `"local_shell", which is not supported`},
		{Responses(), `{"input":"x","tools":[{"type":"shell"}]}`, "tools[0].type", `"shell"`},
		{Responses(), `{"input":"x","tools":[{"type":"apply_patch"}]}`, "tools[0].type", `"apply_patch"`},
		{Responses(), `{"input":"x","tools":[{"type":"computer_use_preview"}]}`, "tools[0].type", `"computer_use_preview"`},
		{Responses(), `{"input":"x","tools":[{"type":"functoin","name":"f"}]}`, "tools[0].type", `"functoin"`},
		{Responses(), `{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"shell"}]}]}`, "tools[0].tools[0].type", `"shell"`},
		{Messages(), `{` + user + `,"thread":{"type":"create"}}`, "thread", "send the whole history"},
		{Messages(), `{"messages":[{"role":"tool","content":"x"}]}`, "messages[0].role", `"tool"`},
		{Messages(), `{"messages":[{"role":"user","content":[{"type":"document"}]}]}`, "messages[0].content[0].type", `"document"`},
		{Messages(), `{"messages":[{"role":"user","content":[{"type":"search_result","source":"https://a","title":"t","content":[{"type":"text","text":"x"}]}]}]}`, "messages[0].content[0].type", `messages[0].content[0] is a block of type "search_result", which is not supported here`},
		{Messages(), `{"messages":[{"role":"user","content":[{"type":"image","source":"https://a"}]}]}`, "messages[0].content[0].source", "an object is needed"},
		{Messages(), `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file"}}]}]}`, "messages[0].content[0].type", `"image"`},
		{Messages(), `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, "messages[0].content[0].type", `"image"`},
		{Messages(), `{"messages":[{"role":"user","content":"17*23?"},{"role":"assistant","content":"{\"answer\": "}]}`, "messages", "does not support assistant message prefill. The conversation must end with a user message"},
		{Messages(), `{` + user + `,"tool_choice":{"type":"tool","name":"f"}}`, "tool_choice", "no tools"},
		{Messages(), `{` + user + `,"mcp_servers":[{"url":"x"}]}`, "mcp_servers", "not supported"},
		{Messages(), `{` + user + `,"output_config":{"format":{"type":"xml"}}}`, "output_config.format", "json_schema"},
	} {
		_, err := c.d.Parse(http.Header{}, []byte(c.body))
		var e *Error
		require.ErrorAs(t, err, &e, c.body)
		require.Equal(t, 400, e.Status)
		require.Equal(t, c.param, e.Param, c.body)
		require.Contains(t, e.Message, c.message)
	}
}

// What says that the reply begins a turn of its own is what happens, and is taken; a chat may end with a turn of the assistant, behind which the reply is
// another one; and the tokens of any conversation can be counted.
func TestWhatEndsAConversation(t *testing.T) {
	const ends = `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]`
	want := []trajectory.Message{text("user", "x"), text("assistant", "y")}
	require.Equal(t, want, parse(t, Chat(), `{`+ends+`}`).Messages)
	require.Equal(t, want, parse(t, Chat(), `{`+ends+`,"continue_final_message":false,"add_generation_prompt":true,"chat_template":null,"chat_template_kwargs":{}}`).Messages)
	require.Equal(t, want, parse(t, MessagesCount(), `{`+ends+`}`).Messages)
}

// TestDigest: a retry has the digest of the request, however its JSON is written; another request does not.
func TestDigest(t *testing.T) {
	of := func(d Dialect, body string) string { return fmt.Sprintf("%x", parse(t, d, body).Digest) }
	const a = `{"model":"m","messages":[{"role":"user","content":"é\/x"}],"temperature":1.5,"budget":1700,"stream":true,"stream_options":{"include_usage":true}}`
	for _, b := range []string{
		`{"stream":false,"messages":[ {"content":"\u00e9/x", "role":"user"} ],"budget":17e2,"temperature":0.15E+1,"model":"m"}`,
		`{"model":"other","model":"m","messages":[{"role":"user","content":"é/x"}],"temperature":15e-1,"budget":1.7e3,"client_metadata":{"x":"1"}}`,
	} {
		require.Equal(t, of(Chat(), a), of(Chat(), b))
	}
	for _, b := range []string{
		strings.Replace(a, "1.5", "1.50001", 1), strings.Replace(a, "1700", "170", 1), strings.Replace(a, `\/x`, "x", 1), strings.Replace(a, `"m"`, `"n"`, 1),
		strings.Replace(a, `"budget"`, `"stream_":1,"budget"`, 1),
	} {
		require.NotEqual(t, of(Chat(), a), of(Chat(), b), b)
	}
	require.NotEqual(t, of(Chat(), `{"messages":[{"role":"user","content":"a","stream":1}]}`), of(Chat(), `{"messages":[{"role":"user","content":"a"}]}`), "only the body's own stream is left out")
	for a, b := range map[string]string{"17": "17.0", "1e3": "1000", "-0": "0.0e5", "1.10": "11e-1", "100": "1E2", "0.001": "1e-3"} {
		require.Equal(t, number(a), number(b))
	}
	for a, b := range map[string]string{"1": "-1", "10": "1", "1e99999999999999999999": "1", "12": "21", "1e1000000": "1e1000001", "9007199254740993": "9007199254740992"} {
		require.NotEqual(t, number(a), number(b))
	}
}

// TestDigestOfRetries: Codex and Claude Code send a request again with other bytes.
func TestDigestOfRetries(t *testing.T) {
	retried := 0
	for client, requests := range recordings(t) {
		for i, r := range requests {
			if client != "codex" && client != "claude-code" || i == 0 || !strings.Contains(r.Case, "retry") && !strings.Contains(r.Case, "again") || r.N != 2 {
				continue
			}
			before := requests[i-1]
			require.Equal(t, 1, before.N)
			q, p := parse(t, dialectOf(t, r.Path), string(r.Body)), parse(t, dialectOf(t, r.Path), string(before.Body))
			require.Equal(t, p.Digest, q.Digest, "%s %s", client, r.Case)
			retried++
		}
	}
	require.GreaterOrEqual(t, retried, 3)
}

// TestDigestOfShuffled compares the canonical form with that of a dumb twin, for random values written in random ways.
func TestDigestOfShuffled(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		v := randomJSON(r, 4)
		one, err := digest(spell(r, v))
		require.Nil(t, err)
		two, err := digest(spell(r, v))
		require.Nil(t, err)
		require.Equal(t, one, two)
		w := randomJSON(r, 4)
		other, err := digest(spell(r, w))
		require.Nil(t, err)
		a, _ := json.Marshal(v)
		b, _ := json.Marshal(w)
		require.Equal(t, string(a) == string(b), one == other, "%s %s", a, b)
	}
}

func randomJSON(r *rand.Rand, depth int) any {
	switch n := r.IntN(7); {
	case n == 0 && depth > 0:
		out := []any{}
		for range r.IntN(4) {
			out = append(out, randomJSON(r, depth-1))
		}
		return out
	case n <= 2 && depth > 0:
		out := map[string]any{}
		for range r.IntN(5) {
			out[[]string{"a", "b", "é", "\"", "a\n", ""}[r.IntN(6)]] = randomJSON(r, depth-1)
		}
		return out
	case n == 3:
		return []string{"", "x", "\\", "\u2028", "a/b", "\t"}[r.IntN(6)]
	case n == 4:
		return r.IntN(2000) - 1000
	case n == 5:
		return r.IntN(2) == 0
	}
	return nil
}

// spell writes v in some way.
func spell(r *rand.Rand, v any) []byte {
	space := []string{"", " ", "\n\t"}[r.IntN(3)]
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		r.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
		if len(keys) > 0 && r.IntN(4) == 0 { // a member that a later one replaces
			keys = append(keys, keys[0])
		}
		var parts []string
		for _, k := range keys {
			parts = append(parts, string(spell(r, k))+space+":"+space+string(spell(r, v[k])))
		}
		return []byte(space + "{" + space + strings.Join(parts, space+","+space) + space + "}" + space)
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, string(spell(r, e)))
		}
		return []byte("[" + space + strings.Join(parts, ","+space) + "]")
	case int:
		return []byte([]string{fmt.Sprint(v), fmt.Sprintf("%d.00", v), fmt.Sprintf("%de0", v), fmt.Sprintf("%d0e-1", v)}[r.IntN(4)])
	case string:
		if r.IntN(2) == 0 {
			out := `"`
			for _, c := range v {
				out += fmt.Sprintf(`\u%04x`, c)
			}
			return []byte(out + `"`)
		}
	}
	out, _ := json.Marshal(v)
	return out
}

func TestSeal(t *testing.T) {
	for _, s := range []string{"", "x", "日本\n", strings.Repeat("a", 1<<16)} {
		got, ok := unseal(seal(s))
		require.True(t, ok)
		require.Equal(t, s, got)
	}
	whole := seal("the reasoning")
	for i := range whole {
		broken := []byte(whole)
		broken[i] ^= 1
		if got, ok := unseal(string(broken)); ok {
			require.Equal(t, "the reasoning", got, "unused bits of the last character")
		}
	}
	for _, s := range []string{"", "gAAAA", opaqueMark, opaqueMark + "AAA", opaqueMark + "!", whole[:len(whole)-1]} {
		_, ok := unseal(s)
		require.False(t, ok, s)
	}
}

func TestAskedIsSortedAndLeavesTheConversationOut(t *testing.T) {
	q := parse(t, Chat(), `{"top_p":1.0,"messages":[{"role":"user","content":"x"}],"model":"m","tools":[],"a":{"z":1,"b":"<"}}`)
	require.Equal(t, `{"a":{"z":1,"b":"<"},"model":"m","top_p":1.0}`, string(q.Asked))
}

func fuzz(f *testing.F, d Dialect) {
	for _, requests := range recordings(f) {
		for _, r := range requests {
			if dialectOf(f, r.Path).Name() == d.Name() {
				f.Add([]byte(r.Body))
			}
		}
	}
	for _, s := range []string{`{}`, `null`, `{"messages":[{"role":"user","content":[{}]}]}`, `{"prompt":[[]]}`, `{"prompt":[[1]]}`, `{"input":[[]],"instructions":[]}`, `{"messages":[{}],"system":{}}`, `{"stop":[[]],"tools":[{"type":"namespace"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := d.Parse(http.Header{}, body)
		if err != nil {
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, 400, e.Status)
			require.NotEmpty(t, e.Message)
			return
		}
		require.True(t, json.Valid(q.Asked))
		require.True(t, d.Name() == "completions" || len(q.Messages) > 0)
		for _, m := range q.Messages {
			require.True(t, slices.Contains([]string{"system", "user", "assistant", "tool"}, m.Role))
			_, err := json.Marshal(m) // arguments are JSON
			require.NoError(t, err)
		}
		for _, tool := range q.Tools {
			_, err := ToolName("", tool)
			require.NoError(t, err)
		}
		again, err := d.Parse(http.Header{}, body)
		require.NoError(t, err)
		require.Equal(t, q.Digest, again.Digest)
	})
}

func FuzzChat(f *testing.F)        { fuzz(f, Chat()) }
func FuzzCompletions(f *testing.F) { fuzz(f, Completions()) }
func FuzzResponses(f *testing.F)   { fuzz(f, Responses()) }
func FuzzMessages(f *testing.F)    { fuzz(f, Messages()) }
