package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/trajectory"
)

// thoughtful is a reply with a thought, content and a call.
const thoughtful = "<think>\nI add.\n</think>\n\nI look: <tool_call>\n{\"name\": \"weather\", \"arguments\": { \"city\" :\"Zürich\"}}\n</tool_call>"

const (
	responsesTool = `"tools":[{"type":"function","name":"weather","parameters":{"type":"object"}}]`
	messagesTool  = `"tools":[{"name":"weather","input_schema":{"type":"object"}}]`
)

// ask sends a body to a route of a dialect, and returns status and body with the ids made plain.
func (h *harness) ask(path, body string) (int, string) {
	h.t.Helper()
	status, out := h.do("POST", path, body)
	for at := strings.Index(out, h.server.stamp.prefix); at >= 0; at = strings.Index(out, h.server.stamp.prefix) {
		out = out[:at] + "ID" + out[at+len(h.server.stamp.prefix)+8:]
	}
	return status, out
}

func TestResponses(t *testing.T) {
	h := start(t, scripted.Options{Respond: says(thoughtful)}, nil)
	status, out := h.ask("/v1/responses", `{"model":"m","input":"a","instructions":"be","max_output_tokens":32000,"temperature":0.5,`+responsesTool+`}`)
	require.Equal(t, 200, status, out)
	var v struct {
		ID, Status string
		Output     []json.RawMessage
		Usage      json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Equal(t, "resp_ID", v.ID)
	require.Equal(t, "completed", v.Status)
	require.Len(t, v.Output, 3)
	require.Contains(t, string(v.Output[0]), `"summary":[{"text":"I add.","type":"summary_text"}],"type":"reasoning"`)
	require.JSONEq(t, `{"id":"msg_ID","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"I look:","annotations":[],"logprobs":[]}]}`, string(v.Output[1]))
	require.JSONEq(t, `{"id":"fc_ID","type":"function_call","call_id":"call_ID","name":"weather","arguments":"{ \"city\" :\"Zürich\"}","status":"completed"}`, string(v.Output[2]))
	require.Contains(t, string(v.Usage), `"output_tokens_details":{"reasoning_tokens":10}`, "the tags are tokens of their own")
	r := h.engine.Requests()[0]
	require.Equal(t, "tool "+`{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}`+"\n<|start|>system: be<|end|><|start|>user: a<|end|><|start|>assistant: ", letters{}.Decode(r.Prompt, false))
	require.Equal(t, 400-len(r.Prompt), r.Sampling.MaxTokens, "max_output_tokens above the context is capped")
	require.Equal(t, 0.5, r.Sampling.Temperature)
	require.Equal(t, []int32{endOfTurn}, r.Sampling.StopIDs)
}

func TestMessages(t *testing.T) {
	h := start(t, scripted.Options{Respond: says(thoughtful)}, nil)
	status, out := h.ask("/v1/messages?beta=true", `{"model":"alias","system":"be","messages":[{"role":"user","content":"a"}],"max_tokens":32000,`+messagesTool+`}`)
	require.Equal(t, 200, status, out)
	var v struct {
		Content []json.RawMessage
		Stop    string `json:"stop_reason"`
		Usage   json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Equal(t, "tool_use", v.Stop)
	require.Len(t, v.Content, 3)
	require.Contains(t, string(v.Content[0]), `"thinking":"I add.","type":"thinking"`)
	require.JSONEq(t, `{"type":"text","text":"I look:"}`, string(v.Content[1]))
	require.JSONEq(t, `{"type":"tool_use","id":"call_ID","name":"weather","input":{"city":"Zürich"}}`, string(v.Content[2]))
	prompt := len(h.engine.Requests()[0].Prompt)
	require.Contains(t, string(v.Usage), `"output_tokens":`)
	status, out = h.ask("/v1/messages/count_tokens", `{"model":"m","system":"be","messages":[{"role":"user","content":"a"}],`+messagesTool+`}`)
	require.Equal(t, 200, status)
	var count struct {
		Tokens int `json:"input_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &count))
	require.Equal(t, prompt, count.Tokens)
	require.Len(t, h.engine.Requests(), 1, "nothing is sampled to count")
	const begun = `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"It is"}]}`
	status, out = h.ask("/v1/messages", begun)
	require.Equal(t, 400, status)
	require.Contains(t, out, "does not support assistant message prefill")
	status, out = h.ask("/v1/messages/count_tokens", begun)
	require.Equal(t, 200, status, out)
}

// TestAgentStreams: the streams of both dialects end as their whole replies, and come piece by piece.
func TestAgentStreams(t *testing.T) {
	h := start(t, scripted.Options{Respond: says(thoughtful), TokenDelay: time.Millisecond}, nil)
	for path, body := range map[string]string{
		"/v1/responses": `{"input":"a","stream":true,` + responsesTool + `}`,
		"/v1/messages":  `{"messages":[{"role":"user","content":"a"}],"stream":true,` + messagesTool + `}`,
	} {
		_, out := h.ask(path, body)
		var events []string
		var thought, text, input strings.Builder
		for _, line := range strings.Split(out, "\n") {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				events = append(events, name)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var v struct {
					Type  string
					Delta json.RawMessage
				}
				require.NoError(t, json.Unmarshal([]byte(data), &v))
				require.Equal(t, events[len(events)-1], v.Type)
				var plain string
				var block struct{ Type, Thinking, Text, Partial_json string } //nolint:revive // Anthropic's name
				if json.Unmarshal(v.Delta, &plain) != nil && len(v.Delta) > 0 {
					require.NoError(t, json.Unmarshal(v.Delta, &block))
				}
				thought.WriteString(block.Thinking)
				text.WriteString(block.Text)
				input.WriteString(block.Partial_json)
				switch v.Type {
				case "response.reasoning_summary_text.delta":
					thought.WriteString(plain)
				case "response.output_text.delta":
					text.WriteString(plain)
				case "response.function_call_arguments.delta":
					input.WriteString(plain)
				}
			}
		}
		require.Equal(t, "I add.", thought.String(), path)
		require.Equal(t, "I look:", text.String(), path)
		require.Equal(t, `{ "city" :"Zürich"}`, input.String(), path)
		require.Contains(t, []string{"response.completed", "message_stop"}, events[len(events)-1])
		require.Greater(t, strings.Count(out, "text.delta")+strings.Count(out, "_delta"), 10, "it comes in pieces")
	}
}

// TestAgentErrors: every error of these routes has the dialect's form: of the request, of the server, and of who asks.
func TestAgentErrors(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.APIKey = "secret" })
	long := strings.Repeat("a", 500)
	for _, c := range []struct {
		path, body string
		status     int
		kind, text string
	}{
		{"/v1/messages", `{"messages":[{"role":"user","content":"` + long + `"}]}`, 400, "invalid_request_error", "prompt is too long: 520 tokens > 400 maximum"},
		{"/v1/responses", `{"input":"` + long + `"}`, 400, "invalid_request_error", "maximum context length is 400 tokens. However, your messages resulted in 520 tokens"},
		{"/v1/messages", `{"model":"gpt","messages":[{"role":"user","content":"a"}]}`, 404, "not_found_error", "`gpt` does not exist"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}],"thread":{"type":"create"}}`, 400, "invalid_request_error", "no threads"},
		{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x"}}]}]}`, 400, "invalid_request_error", "text alone"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"any"},` + messagesTool + `}`, 400, "invalid_request_error", "does not constrain decoding"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}],"temperature":-1}`, 400, "invalid_request_error", "emperature"},
		{"/v1/responses", `{"input":"a","text":{"format":{"type":"json_object"}}}`, 400, "invalid_request_error", "does not constrain decoding"},
		{"/v1/responses", `{"input":"a","previous_response_id":"r"}`, 400, "invalid_request_error", "send all earlier items"},
		{"/v1/messages/nothing", `{}`, 404, "not_found_error", "there is no route"},
	} {
		status, out := h.do("POST", c.path, c.body)
		require.Equal(t, c.status, status, out)
		var v struct {
			Type  string
			Error struct{ Type, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &v))
		require.Equal(t, strings.HasPrefix(c.path, "/v1/messages"), v.Type == "error", out)
		require.Equal(t, c.kind, v.Error.Type)
		require.Contains(t, v.Error.Message, c.text)
	}
	require.Empty(t, h.engine.Requests())

	for _, header := range []string{"x-api-key", "Authorization", ""} {
		r := h.request(context.Background(), "POST", "/v1/messages", `{"messages":[{"role":"user","content":"a"}]}`)
		r.Header.Del("Authorization")
		want := 200
		switch header {
		case "x-api-key":
			r.Header.Set(header, "secret")
		case "Authorization":
			r.Header.Set(header, "Bearer secret")
		default:
			want = 401
			r.Header.Set("x-api-key", "secre")
		}
		resp, err := h.http.Client().Do(r)
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode)
		require.Equal(t, want == 401, strings.Contains(string(data), `"authentication_error"`))
	}
}

// TestAgentErrorsNameParameters: an error names the parameter that the client sent, by the name that it has in its API. Those of Messages have no param.
func TestAgentErrorsNameParameters(t *testing.T) {
	const (
		no       = `{"type":"object","not":{}}`
		image    = `[{"type":"input_image","image_url":"http://x"}]`
		messages = `"max_tokens":5,"messages":[{"role":"user","content":"a"}]`
	)
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	none := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.Renderer = nil })
	refusing := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.Renderer = refuser{} })
	for _, c := range []struct {
		of                      *harness
		path, body, param, text string
	}{
		{h, "/v1/responses", `{"input":"a","top_logprobs":3}`, "top_logprobs", "top_logprobs is 3"},
		{h, "/v1/responses", `{"input":"a","top_logprobs":-3}`, "top_logprobs", "top_logprobs is -3"},
		{h, "/v1/responses", `{"input":"a","include":["reasoning.encrypted_content","message.output_text.logprobs"]}`, "include", "message.output_text.logprobs"},
		{h, "/v1/responses", `{"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":` + no + `}}}`, "text.format", `text.format: schema: "not" is not supported`},
		{h, "/v1/responses", `{"input":"a","text":{"format":{"type":"json_object"}}}`, "text.format", "text.format is not supported by this server: its engine"},
		{h, "/v1/responses", `{"instructions":"be","input":[{"role":"user","content":` + image + `}]}`, "input", "message 2 of the conversation (user): this model reads text alone"},
		{h, "/v1/responses", `{"input":"` + strings.Repeat("a", 500) + `"}`, "input", "maximum context length is 400 tokens"},
		{h, "/v1/responses", `{"input":[` + strings.Repeat(`{"role":"user","content":"a"},`, 400) + `{"role":"user","content":"a"}]}`, "input", "the conversation has 401 messages"},
		{h, "/v1/responses", `{"input":"` + strings.Repeat("a", leastText+1) + `"}`, "input", "the conversation has 1048577 bytes"},
		{none, "/v1/responses", `{"input":"a"}`, "input", "no chat template"},
		{refusing, "/v1/responses", `{"input":"a"}`, "input", "roles must alternate"},
		{refusing, "/v1/chat/completions", `{` + user + `}`, "messages", "roles must alternate"},
		{h, "/v1/chat/completions", `{` + user + `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + no + `}}}`, "response_format", `response_format: schema: "not" is not supported`},
		{h, "/inference/v1/generate", `{"token_ids":[999],"sampling_params":{"max_tokens":1}}`, "token_ids", "prompt token 0 is 999"},
		{h, "/v1/messages", `{` + messages + `,"output_config":{"format":{"type":"json_schema","schema":` + no + `}}}`, "", `output_config.format: schema: "not" is not supported`},
		{h, "/v1/messages", `{` + messages + `,"output_format":{"type":"json_schema","schema":` + no + `}}`, "", `output_format: schema: "not" is not supported`},
		{h, "/v1/messages", `{` + messages + `,"output_format":{"type":"xml"}}`, "", `output_format must be {"type": "json_schema"`},
	} {
		status, out := c.of.do("POST", c.path, c.body)
		require.Equal(t, 400, status, out)
		var v struct {
			Error struct{ Param, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &v))
		require.Equal(t, c.param, v.Error.Param, out)
		require.Contains(t, v.Error.Message, c.text)
		require.True(t, strings.HasPrefix(v.Error.Message, c.text) || c.path != "/v1/messages", out)
	}
	require.Empty(t, h.engine.Requests())
	h.post("/v1/responses", `{"input":"a","top_logprobs":0,"include":["reasoning.encrypted_content"]}`)
}

// refuser is a chat template that refuses every conversation.
type refuser struct{ lines }

func (refuser) Prompt([]trajectory.Message, []json.RawMessage, bool) ([]int32, string, error) {
	return nil, "", errors.New("roles must alternate")
}

// TestAgentKeepAlive: a stream says that it lives while the server is paused, and goes on when it resumes.
func TestAgentKeepAlive(t *testing.T) {
	for path, c := range map[string]struct{ body, ping string }{
		"/v1/responses": {`{"input":"a","stream":true}`, ": ping"},
		"/v1/messages":  {`{"messages":[{"role":"user","content":"a"}],"stream":true}`, "event: ping"},
	} {
		h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.KeepAlive = 2 * time.Millisecond })
		h.post("/pause?mode=keep", "")
		resp, err := h.http.Client().Do(h.request(context.Background(), "POST", path, c.body))
		require.NoError(t, err)
		pings, end := 0, ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if lines.Text() == c.ping {
				if pings++; pings == 3 {
					require.Empty(t, h.engine.Requests())
					h.post("/resume", "")
				}
			}
			if data := lines.Text(); data != "" {
				end = data
			}
		}
		require.NoError(t, resp.Body.Close())
		require.GreaterOrEqual(t, pings, 3)
		require.Contains(t, []bool{strings.Contains(end, "message_stop"), strings.Contains(end, `"response.completed"`)}, true, end)
	}
}

func pauses(h *harness) {
	h.post("/pause?mode=abort", "")
	h.post("/resume", "")
}

func closes(h *harness) { h.server.Close() }

// TestAgentAborted: a reply that the server aborted is an error, also in the middle of a stream, so that the client asks again.
func TestAgentAborted(t *testing.T) {
	type abort struct{ stream, message string }
	for c, end := range map[abort]func(h *harness){
		{"false", "the server was paused; ask again"}: pauses, {"true", "the server was paused; ask again"}: pauses,
		{"false", "the server is shutting down"}: closes, {"true", "the server is shutting down"}: closes,
	} {
		stream := c.stream
		h := start(t, slow(), nil)
		type reply struct {
			status int
			body   string
		}
		got := make(chan reply)
		go func() {
			resp, err := h.http.Client().Do(h.request(context.Background(), "POST", "/v1/messages", `{"messages":[{"role":"user","content":"a"}],"stream":`+stream+`}`))
			if err != nil {
				got <- reply{body: err.Error()}
				return
			}
			data, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got <- reply{resp.StatusCode, string(data)}
		}()
		h.started(3)
		end(h)
		r := <-got
		require.Contains(t, r.body, `"overloaded_error"`)
		require.Contains(t, r.body, c.message)
		require.Equal(t, map[string]int{"false": http.StatusServiceUnavailable, "true": http.StatusOK}[stream], r.status)
	}
}

// TestAgentEcho: what the reply said comes back in the next request as the conversation's own message.
func TestAgentEcho(t *testing.T) {
	h := start(t, scripted.Options{Respond: says(thoughtful)}, nil)
	_, out := h.ask("/v1/responses", `{"input":"a",`+responsesTool+`}`)
	var v struct{ Output json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	items := strings.TrimSuffix(strings.TrimPrefix(string(v.Output), "["), "]")
	_, _ = h.ask("/v1/responses", `{"input":[{"role":"user","content":"a"},`+items+`,{"type":"function_call_output","call_id":"call_ID","output":"sunny"}]}`)
	r := h.engine.Requests()[1]
	require.Equal(t, `<|start|>user: a<|end|><|start|>assistant: I look: call weather{ "city" :"Zürich"}<|end|><|start|>tool: sunny<|end|><|start|>assistant: `, letters{}.Decode(r.Prompt, false))
}

// TestBeforeTheCall: what could have begun a thought is told before the call that follows it.
func TestBeforeTheCall(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("<thin <tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>")}, nil)
	_, out := h.ask("/v1/messages", `{"messages":[{"role":"user","content":"a"}],"stream":true,`+messagesTool+`}`)
	text, call := strings.Index(out, `"text_delta"`), strings.Index(out, `"tool_use"`)
	require.Positive(t, text)
	require.Less(t, text, call)
}

// TestMessagesStopSequence: a stop string is told as Anthropic does.
func TestMessagesStopSequence(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("one END two")}, nil)
	_, out := h.ask("/v1/messages", `{"messages":[{"role":"user","content":"a"}],"stop_sequences":["END"]}`)
	require.Contains(t, out, `"text":"one "`)
	require.Contains(t, out, `"stop_reason":"stop_sequence","stop_sequence":"END"`)
	_, out = h.ask("/v1/messages", `{"messages":[{"role":"user","content":"a"}],"max_tokens":2}`)
	require.Contains(t, out, `"stop_reason":"max_tokens","stop_sequence":null`)
}
