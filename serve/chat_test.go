package serve

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
)

const (
	user     = `"messages":[{"role":"user","content":"a"}]`
	weather  = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`
	oneCall  = `<tool_call>{"name": "weather", "arguments": {"city": "Zürich </tool_call>"}}</tool_call>`
	twoCalls = "Let me see.\n" + oneCall + "\n<tool_call>\n" + `{"name":"clock","arguments":{}}` + "\n</tool_call>"
)

func TestChat(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hé <tool_call>")}, nil)
	require.JSONEq(t, `{"id":"chatcmpl-ID","object":"chat.completion","created":1700000000,"model":"m","choices":[`+
		`{"index":0,"message":{"role":"assistant","content":"hé <tool_call>"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],`+
		`"usage":{"prompt_tokens":21,"total_tokens":37,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":0}}}`,
		h.post("/v1/chat/completions", `{`+user+`}`))
	r := h.engine.Requests()[0]
	require.Equal(t, "<|start|>user: a<|end|><|start|>assistant: ", letters{}.Decode(r.Prompt, false))
	require.Equal(t, 400-21, r.Sampling.MaxTokens)
	h.post("/v1/chat/completions", `{"max_completion_tokens":3,"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},`+
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"7","tool_call_id":"1"}]}`)
	r = h.engine.Requests()[1]
	require.Equal(t, "<|start|>user: a\nb<|end|><|start|>assistant:  call f{\"x\":1}<|end|><|start|>tool: 7<|end|><|start|>assistant: ", letters{}.Decode(r.Prompt, false))
	require.Equal(t, 3, r.Sampling.MaxTokens)
}

func TestChatTokens(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("é", "x")}, nil)
	require.JSONEq(t, `{"id":"chatcmpl-ID","object":"chat.completion","created":1700000000,"model":"m","prompt_token_ids":[257,117,115,101,114,58,32,97,256,257,97,115,115,105,115,116,97,110,116,58,32],"choices":[`+
		`{"index":0,"message":{"role":"assistant","content":"é"},"logprobs":{"content":[`+
		`{"token":"�","logprob":0,"bytes":[195],"top_logprobs":[{"token":"�","logprob":0,"bytes":[195]}]},`+
		`{"token":"�","logprob":-0.25,"bytes":[169],"top_logprobs":[{"token":"�","logprob":-0.25,"bytes":[169]}]}]},`+
		`"finish_reason":"length","stop_reason":null,"token_ids":[195,169],"weight_versions":[{"version":"default","start":0,"end":2}]},`+
		`{"index":1,"message":{"role":"assistant","content":"x"},"logprobs":{"content":[`+
		`{"token":"x","logprob":0,"bytes":[120],"top_logprobs":[{"token":"x","logprob":0,"bytes":[120]}]},`+
		`{"token":"<|end|>","logprob":-0.25,"bytes":[60,124,101,110,100,124,62],"top_logprobs":[{"token":"<|end|>","logprob":-0.25,"bytes":[60,124,101,110,100,124,62]}]}]},`+
		`"finish_reason":"stop","stop_reason":null,"token_ids":[120,256],"weight_versions":[{"version":"default","start":0,"end":2}]}],`+
		`"usage":{"prompt_tokens":21,"total_tokens":25,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}}`,
		h.post("/v1/chat/completions", `{`+user+`,"n":2,"seed":0,"max_tokens":2,"logprobs":true,"top_logprobs":1,"return_token_ids":true}`))
}

func TestChatStream(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("é€")}, nil)
	head := `{"id":"chatcmpl-ID","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[`
	chunk := func(delta, finish string) string {
		return head + `{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `,"stop_reason":null}]}`
	}
	require.Equal(t, []string{
		chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{"content":"é"}`, "null"), chunk(`{"content":"€"}`, "null"),
		chunk(`{"content":""}`, `"stop"`),
		head + `],"usage":{"prompt_tokens":21,"total_tokens":27,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":0}}}`,
	}, h.events("/v1/chat/completions", `{`+user+`,"stream":true,"stream_options":{"include_usage":true}}`))
}

// TestChatStreamAnnouncesChoicesInOrder: the first chunk of a stream is of choice 0, and each further choice shows itself after those of lower
// indices, whichever of them samples first: OpenAI's stream helper looks choices up in a list that it appends to.
func TestChatStreamAnnouncesChoicesInOrder(t *testing.T) {
	h := start(t, scripted.Options{Respond: func(r engines.Request) (engines.Completion, error) {
		time.Sleep(time.Duration(2-r.Seed) * 50 * time.Millisecond) // choice 2 is the first
		return says("x")(r)
	}}, nil)
	var order []int
	prompts := 0
	for _, e := range h.events("/v1/chat/completions", `{`+user+`,"stream":true,"n":3,"seed":0,"return_token_ids":true}`) {
		var chunk struct {
			Prompt  []int32 `json:"prompt_token_ids"`
			Choices []struct {
				Index int
				Delta struct{ Role string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(e), &chunk))
		c := chunk.Choices[0]
		require.Equal(t, !slices.Contains(order, c.Index), c.Delta.Role == "assistant", "the role comes first, and once")
		if c.Delta.Role != "" {
			order = append(order, c.Index)
		}
		if chunk.Prompt != nil {
			prompts++
		}
	}
	require.Equal(t, []int{0, 1, 2}, order)
	require.Equal(t, 3, prompts, "the prompt comes with each role")
}

// said is what a client puts together from either kind of reply.
type said struct {
	Content string
	Calls   [][2]string
	Finish  string
}

func (h *harness) saidWhole(body string) said {
	var reply struct {
		Choices []struct {
			Message struct {
				Content *string
				Calls   []dialects.ChatCall `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}
	}
	require.NoError(h.t, json.Unmarshal([]byte(h.post("/v1/chat/completions", "{"+body+"}")), &reply))
	c := reply.Choices[0]
	out := said{Finish: c.Finish}
	if c.Message.Content != nil {
		out.Content = *c.Message.Content
	}
	for _, call := range c.Message.Calls {
		out.Calls = append(out.Calls, [2]string{call.Function.Name, call.Function.Arguments})
	}
	return out
}

func (h *harness) saidStream(body string) said {
	var out said
	for _, e := range h.events("/v1/chat/completions", `{"stream":true,`+body+"}") {
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string
					Calls   []dialects.ChatCall `json:"tool_calls"`
				}
				Finish *string `json:"finish_reason"`
			}
		}
		require.NoError(h.t, json.Unmarshal([]byte(e), &chunk))
		c := chunk.Choices[0]
		require.Empty(h.t, out.Finish, "nothing follows the finish reason")
		out.Content += c.Delta.Content
		for _, call := range c.Delta.Calls {
			require.Equal(h.t, len(out.Calls), *call.Index)
			require.Equal(h.t, "function", call.Type)
			require.NotEmpty(h.t, call.ID)
			out.Calls = append(out.Calls, [2]string{call.Function.Name, call.Function.Arguments})
		}
		if c.Finish != nil {
			require.Empty(h.t, c.Delta.Calls, "OpenAI's stream helper ends a call when a chunk follows it")
			out.Finish = *c.Finish
		}
	}
	return out
}

func TestToolCalls(t *testing.T) {
	zurich := [2]string{"weather", `{"city": "Zürich </tool_call>"}`}
	for name, c := range map[string]struct {
		text, more string
		want       said
	}{
		"one":           {oneCall, "", said{"", [][2]string{zurich}, "tool_calls"}},
		"two":           {twoCalls, "", said{"Let me see.", [][2]string{zurich, {"clock", "{}"}}, "tool_calls"}},
		"first only":    {twoCalls, `,"parallel_tool_calls":false`, said{"Let me see.", [][2]string{zurich}, "tool_calls"}},
		"none wanted":   {oneCall, `,"tool_choice":"none"`, said{oneCall, nil, "stop"}},
		"no call":       {"5 < 6 <tool> \n", "", said{"5 < 6 <tool> \n", nil, "stop"}},
		"broken":        {"x <tool_call>{nonsense}</tool_call> y", "", said{"x <tool_call>{nonsense}</tool_call> y", nil, "stop"}},
		"no name":       {`<tool_call>{"arguments":{}}</tool_call>`, "", said{`<tool_call>{"arguments":{}}</tool_call>`, nil, "stop"}},
		"broken, good":  {"<tool_call>{]</tool_call>\n" + oneCall, "", said{"<tool_call>{]</tool_call>", [][2]string{zurich}, "tool_calls"}},
		"not closed":    {strings.TrimSuffix(oneCall, "</tool_call>"), "", said{"", [][2]string{zurich}, "tool_calls"}},
		"cut":           {`a <tool_call>{"name": "wea`, "", said{`a <tool_call>{"name": "wea`, nil, "stop"}},
		"text inside":   {`<tool_call>{"name":"f","arguments":{}} and</tool_call>`, "", said{`<tool_call>{"name":"f","arguments":{}} and</tool_call>`, nil, "stop"}},
		"text after":    {oneCall + " done", "", said{"done", [][2]string{zurich}, "tool_calls"}},
		"cut by length": {oneCall, `,"max_tokens":20`, said{oneCall[:20], nil, "length"}},
	} {
		h := start(t, scripted.Options{Respond: says(c.text)}, nil)
		body := user + "," + weather + c.more
		require.Equal(t, c.want, h.saidWhole(body), name)
		require.Equal(t, c.want, h.saidStream(body), "%s, streamed", name)
		require.Contains(t, letters{}.Decode(h.engine.Requests()[0].Prompt, false), `tool {"type":"function"`, "the tools are rendered whatever the choice")
	}
}

func TestToolCallReply(t *testing.T) {
	h := start(t, scripted.Options{Respond: says(oneCall)}, nil)
	require.Contains(t, h.post("/v1/chat/completions", `{`+user+`,`+weather+`,"tool_choice":"auto"}`),
		`"message":{"role":"assistant","content":null,"tool_calls":[{"id":"chatcmpl-tool-ID","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Zürich </tool_call>\"}"}}]},"logprobs":null,"finish_reason":"tool_calls"`)
}

func TestChatRefuses(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	for body, message := range map[string]string{
		`{}`:                             "messages is missing or empty",
		`{"messages":[]}`:                "messages is missing or empty",
		`{"messages":[null]}`:            "messages[0] is no object",
		`{"messages":[{"content":"a"}]}`: "messages[0] has no role",
		`{"messages":[7]}`:               "messages[0]",
		`{"messages":[{"role":"user","content":7}]}`:                                                     "messages[0].content must be a text or a list of parts",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`:        `part 0 is "image", only text`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]}`:             "messages[0].tool_calls[0] has no name",
		`{` + user + `,"tool_choice":"required",` + weather + `}`:                                        "tool_choice is not supported by this server: its engine does not constrain decoding",
		`{` + user + `,"tool_choice":{"type":"function","function":{"name":"weather"}},` + weather + `}`: "its engine does not constrain decoding",
		`{` + user + `,"tool_choice":{"type":"function","function":{"name":"wether"}},` + weather + `}`:  `which is none of the tools (did you mean "weather"?)`,
		`{` + user + `,"tool_choice":"whatever"}`:                                                        `tool_choice is "whatever"`,
		`{` + user + `,"tool_choice":7}`:                                                                 "tool_choice must be none, auto, required",
		`{` + user + `,"tools":[{"type":"function"}]}`:                                                   "tools[0] must be",
		`{` + user + `,"tools":[7]}`:                                                                     "tools[0]",
		`{` + user + `,"top_logprobs":2}`:                                                                "top_logprobs needs logprobs",
		`{` + user + `,"logprobs":true,"top_logprobs":21}`:                                               "top_logprobs is 21, allowed are 0 to 20",
		`{` + user + `,"response_format":{"type":"json_object"}}`:                                        "response_format is not supported by this server: its engine does not constrain decoding",
		`{` + user + `,"continue_final_message":true}`:                                                   "continue_final_message is not supported",
		`{` + user + `,"chat_template":"x"}`:                                                             "chat_template is not supported",
		`{"messages":[{"role":"usr","content":"a"}]}`:                                                    `messages[0].role is "usr", allowed are system, user, assistant, tool, and developer for system (did you mean "user"?)`,
		`{"messages":[{"role":"user","content":"` + strings.Repeat("a", 400) + `"}]}`:                    "maximum context length is 400 tokens. However, your messages resulted in 420 tokens",
		`{` + user + `,"max_tokens":0}`:                                                                  "max_tokens is 0",
		`{` + user + `,"max_tokens":-1}`:                                                                 "max_tokens is -1",
	} {
		h.refuses("/v1/chat/completions", body, 400, message)
	}
	h.post("/v1/chat/completions", `{`+user+`,"response_format":{"type":"text"},"logit_bias":{},"presence_penalty":0,"stop":[],"tools":[],"tool_choice":null,"user":"u","metadata":{}}`)
	h.post("/v1/chat/completions", `{`+user+`,"max_tokens":32000,"reasoning_effort":"high"}`) // capped, and a hint
	requests := h.engine.Requests()
	require.Equal(t, 400-21, requests[len(requests)-1].Sampling.MaxTokens)
	none := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.Renderer = nil })
	none.refuses("/v1/chat/completions", `{`+user+`}`, 400, "no chat template")
}
