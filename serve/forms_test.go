//go:build torch

package serve

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A random model writes noise; held to a form it writes the form, in every dialect, streamed or not.
const (
	formSchema = `{"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"],"additionalProperties":false}`
	formTools  = `"tools":[{"type":"function","function":{"name":"weather","parameters":` + formSchema + `}},{"type":"function","function":{"name":"roll","parameters":{"type":"object","properties":{"sides":{"enum":[6,20]}},"required":["sides"]}}}]`
	formAsks   = `"messages":[{"role":"user","content":"x"}]`
)

func requireForecast(t *testing.T, text string) {
	t.Helper()
	var v struct {
		City *string
		Days int
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&v), text)
	require.NotNil(t, v.City, text)
	require.True(t, v.Days >= 1 && v.Days <= 9, text)
}

func TestLocalFormsOfReplies(t *testing.T) {
	h, _ := startLocal(t, nil)
	for seed := range 4 {
		ask := fmt.Sprintf(`{`+formAsks+`,"seed":%d,"max_tokens":200,"logprobs":true,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":`+formSchema+`}}}`, seed)
		whole := h.post("/v1/chat/completions", ask)
		var said struct {
			Choices []struct {
				Message  struct{ Content string }
				Logprobs *chatLogprobs
				Finish   string `json:"finish_reason"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(whole), &said))
		require.Equal(t, "stop", said.Choices[0].Finish)
		requireForecast(t, said.Choices[0].Message.Content)
		require.Zero(t, said.Choices[0].Logprobs.Content[0].Logprob, "nothing else can begin it")

		// the same streamed
		var streamed strings.Builder
		for _, e := range h.events("/v1/chat/completions", strings.Replace(ask, `{`, `{"stream":true,`, 1)) {
			var chunk struct {
				Choices []struct{ Delta struct{ Content string } }
			}
			if e == "[DONE]" {
				continue
			}
			require.NoError(t, json.Unmarshal([]byte(e), &chunk), e)
			for _, c := range chunk.Choices {
				streamed.WriteString(c.Delta.Content)
			}
		}
		require.Equal(t, said.Choices[0].Message.Content, streamed.String())
	}
	var text completionReply
	for _, c := range []struct{ form, matches string }{
		{`{"regex":"[a-c]{3}-\\d+x"}`, `^[a-c]{3}-\d+x$`},
		{`{"choice":["yes","no","maybe so"]}`, `^(yes|no|maybe so)$`},
		{`{"json_object":true}`, `^\{`},
	} {
		require.NoError(t, json.Unmarshal([]byte(h.post("/v1/completions", `{"prompt":"x","n":3,"seed":1,"max_tokens":400,"structured_outputs":`+c.form+`}`)), &text))
		require.Len(t, text.Choices, 3)
		for _, choice := range text.Choices {
			require.Regexp(t, regexp.MustCompile(c.matches), choice.Text)
		}
	}
	var g generateReply
	require.NoError(t, json.Unmarshal([]byte(h.post("/inference/v1/generate", `{"token_ids":[1,2],"sampling_params":{"max_tokens":9,"ignore_eos":true,"stop":["z"],"structured_outputs":{"choice":["ab"]}}}`)), &g))
	require.Equal(t, []int32{'a', 'b'}, g.Choices[0].TokenIDs, "without a stop id the form ends the completion")
	require.Nil(t, g.Choices[0].Reason, "and not the stop string")

	var responses struct {
		Output []struct{ Content []struct{ Text string } }
	}
	require.NoError(t, json.Unmarshal([]byte(h.post("/v1/responses", `{"input":"x","max_output_tokens":200,"text":{"format":{"type":"json_schema","name":"n","schema":`+formSchema+`}}}`)), &responses))
	requireForecast(t, responses.Output[0].Content[0].Text)
	var messages struct {
		Content []struct {
			Type, Text, Name string
			Input            json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(h.post("/v1/messages", `{"max_tokens":200,`+formAsks+`,"output_config":{"format":{"type":"json_schema","schema":`+formSchema+`}}}`)), &messages))
	requireForecast(t, messages.Content[0].Text)
	h.refuses("/v1/chat/completions", `{`+formAsks+`,"response_format":{"type":"json_object"},"min_tokens":3}`, 400, "min_tokens is 3, but with response_format the form says when the reply ends")
	h.refuses("/v1/chat/completions", `{`+formAsks+`,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"array","uniqueItems":true}}}}`, 400, `response_format: schema: "uniqueItems" is not supported`)
}

// A form that only the empty text has is whole before a token is sampled.
func TestLocalEmptyForms(t *testing.T) {
	h, _ := startLocal(t, nil)
	for _, form := range []string{`{"choice":[""]}`, `{"regex":"^$"}`} {
		for _, more := range []string{``, `"n":2,"logprobs":1,`, `"stop":["x"],`} {
			ask := `{"prompt":"x",` + more + `"ignore_eos":true,"structured_outputs":` + form + `}`
			var text completionReply
			require.NoError(t, json.Unmarshal([]byte(h.post("/v1/completions", ask)), &text), ask)
			for _, choice := range text.Choices {
				require.Equal(t, []any{"", "stop", nil}, []any{choice.Text, *choice.Finish, choice.Reason}, ask)
			}
			require.Zero(t, text.Usage.Completion)
			var streamed, finish string
			for _, e := range h.events("/v1/completions", strings.Replace(ask, `{`, `{"stream":true,`, 1)) {
				if e == "[DONE]" {
					continue
				}
				text = completionReply{}
				require.NoError(t, json.Unmarshal([]byte(e), &text), e)
				for _, choice := range text.Choices {
					if choice.Index > 0 {
						continue
					}
					streamed += choice.Text
					if choice.Finish != nil {
						finish = *choice.Finish
					}
				}
			}
			require.Equal(t, []string{"", "stop"}, []string{streamed, finish}, ask)
		}
		require.Contains(t, h.post("/v1/chat/completions", `{`+formAsks+`,"ignore_eos":true,"logprobs":true,"structured_outputs":`+form+`}`), `"finish_reason":"stop"`)
		var g generateReply
		require.NoError(t, json.Unmarshal([]byte(h.post("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"ignore_eos":true,"logprobs":1,"structured_outputs":`+form+`}}`)), &g))
		require.Empty(t, g.Choices[0].TokenIDs)
	}
}

func TestLocalCallsAreRequired(t *testing.T) {
	for _, parser := range []string{"hermes", "mistral", "llama3_json", "qwen3_coder"} {
		h, _ := startLocal(t, func(o *Options) { o.ToolParser = parser })
		type reply struct {
			Choices []struct {
				Message struct {
					Content   *string
					ToolCalls []struct {
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		names := map[string]bool{}
		for seed := range 12 {
			var out reply
			require.NoError(t, json.Unmarshal([]byte(h.post("/v1/chat/completions", fmt.Sprintf(`{`+formAsks+`,`+formTools+`,"tool_choice":"required","parallel_tool_calls":false,"seed":%d}`, seed))), &out))
			require.Len(t, out.Choices[0].Message.ToolCalls, 1, parser)
			require.Equal(t, "tool_calls", out.Choices[0].Finish)
			call := out.Choices[0].Message.ToolCalls[0].Function
			names[call.Name] = true
			if call.Name == "weather" {
				requireForecast(t, call.Arguments)
			} else {
				require.Contains(t, []string{`{"sides":6}`, `{"sides":20}`}, strings.ReplaceAll(strings.ReplaceAll(call.Arguments, " ", ""), "\n", ""))
			}
			require.NoError(t, json.Unmarshal([]byte(h.post("/v1/chat/completions", fmt.Sprintf(`{`+formAsks+`,`+formTools+`,"tool_choice":{"type":"function","function":{"name":"roll"}},"seed":%d}`, seed))), &out))
			require.Len(t, out.Choices[0].Message.ToolCalls, 1)
			require.Equal(t, "roll", out.Choices[0].Message.ToolCalls[0].Function.Name)
		}
		require.Len(t, names, 2)
		var messages struct {
			Content []struct{ Type, Name string }
			Reason  string `json:"stop_reason"`
		}
		for range 10 { // the API has no seed, and a random model may write a text until it is cut
			require.NoError(t, json.Unmarshal([]byte(h.post("/v1/messages", `{"max_tokens":500,`+formAsks+`,"tools":[{"name":"weather","input_schema":`+formSchema+`}],"tool_choice":{"type":"any"}}`)), &messages))
			if messages.Reason != "max_tokens" {
				break
			}
		}
		require.Equal(t, "tool_use", messages.Content[0].Type, "%s: %s", parser, messages.Reason)
		require.Equal(t, "tool_use", messages.Reason)
		var responses struct {
			Status string
			Output []struct{ Type, Name string }
		}
		for range 10 {
			require.NoError(t, json.Unmarshal([]byte(h.post("/v1/responses", `{"input":"x","tools":[{"type":"function","name":"weather","parameters":`+formSchema+`}],"tool_choice":"required"}`)), &responses))
			if responses.Status != "incomplete" {
				break
			}
		}
		require.Equal(t, "function_call", responses.Output[0].Type, "%s: %s", parser, responses.Status)
		h.refuses("/v1/chat/completions", `{`+formAsks+`,`+formTools+`,"tool_choice":"required","response_format":{"type":"json_object"}}`, 400, "tool_choice requires a call, and response_format a form of the reply; give one")
	}
}
