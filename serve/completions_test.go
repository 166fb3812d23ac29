package serve

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines/scripted"
)

func TestInfo(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	status, body := h.do("GET", "/health", "")
	require.Equal(t, 200, status)
	require.Empty(t, body)
	for path, want := range map[string]string{
		"/version":         `{"version":"0.0.1"}`,
		"/v1/models/alias": `{"id":"alias","object":"model","created":1700000000,"owned_by":"agentfly","root":"root","parent":null,"max_model_len":400}`,
		"/v1/models": `{"object":"list","data":[{"id":"m","object":"model","created":1700000000,"owned_by":"agentfly","root":"root","parent":null,"max_model_len":400},` +
			`{"id":"alias","object":"model","created":1700000000,"owned_by":"agentfly","root":"root","parent":null,"max_model_len":400}]}`,
		"/is_paused":   `{"is_paused":false}`,
		"/weight_info": `{"weight_version":"default"}`,
	} {
		status, body := h.do("GET", path, "")
		require.Equal(t, 200, status, path)
		require.JSONEq(t, want, body, path)
	}
	_, body = h.do("GET", "/openapi.json", "")
	require.Contains(t, body, `"/inference/v1/generate":{"post":{}}`)
	require.NotContains(t, body, "/collective_rpc", "what is not offered is not listed")
}

func TestCompletions(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	want := `{"id":"cmpl-ID","object":"text_completion","created":1700000000,"model":"m","choices":[` +
		`{"index":0,"text":"hi","logprobs":null,"finish_reason":"stop","stop_reason":null}],` +
		`"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`
	for _, prompt := range []string{`"ab"`, `[258,97,98]`, `["ab"]`, `[[258,97,98]]`} {
		require.JSONEq(t, want, h.post("/v1/completions", `{"model":"alias","prompt":`+prompt+`,"nobody":"knows this"}`), prompt)
	}
	r := h.engine.Requests()[0]
	require.Equal(t, []int32{258, 97, 98}, r.Prompt)
	require.Equal(t, 16, r.Sampling.MaxTokens)
	require.Equal(t, 1.0, r.Sampling.Temperature)
	require.Equal(t, 1.0, r.Sampling.TopP)
	require.Equal(t, []int32{256}, r.Sampling.StopIDs)
	h.post("/v1/completions", `{"prompt":"ab","add_special_tokens":false,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"seed":-1,"ignore_eos":true,"max_tokens":2}`)
	r = h.engine.Requests()[4]
	require.Equal(t, []int32{97, 98}, r.Prompt)
	require.Equal(t, uint64(1<<64-1), r.Seed)
	require.Equal(t, 0.5, r.Sampling.Temperature)
	require.Equal(t, 0, r.Sampling.TopK)
	require.Empty(t, r.Sampling.StopIDs)
}

func TestCompletionsTokens(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("ab", "cd")}, nil)
	got := h.post("/v1/completions", `{"prompt":[[97],[98,99]],"n":2,"seed":0,"logprobs":1,"return_tokens_as_token_ids":true,"return_token_ids":true,"max_tokens":2}`)
	var reply completionReply
	require.NoError(t, json.Unmarshal([]byte(got), &reply))
	require.Len(t, reply.Choices, 4)
	for i, text := range []string{"ab", "cd", "ab", "cd"} {
		c := reply.Choices[i]
		require.Equal(t, text, c.Text)
		require.Equal(t, i, c.Index)
		require.Equal(t, "length", *c.Finish)
		require.Equal(t, []int32{int32(text[0]), int32(text[1])}, c.TokenIDs)
		require.Equal(t, []span{{"default", 0, 2}}, c.Versions)
		require.Len(t, c.Logprobs.Tokens, 2)
		require.Equal(t, -0.25, *c.Logprobs.Logprobs[1])
	}
	require.Equal(t, []string{"token_id:99", "token_id:100"}, reply.Choices[1].Logprobs.Tokens)
	require.Equal(t, []int32{98, 99}, reply.Choices[3].Prompt)
	require.Equal(t, usage{3, 11, 8, &cachedTokens{}}, *reply.Usage)
}

func TestCompletionsLogprobs(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("aé")}, nil)
	require.JSONEq(t, `{"id":"cmpl-ID","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,"text":"aé","logprobs":{`+
		`"text_offset":[0,1,2,3],"tokens":["a","�","�","<|end|>"],"token_logprobs":[0,-0.25,-0.5,-0.75],`+
		`"top_logprobs":[{"a":0,"b":-1},{"�":-0.25},{"�":-0.5},{"<|end|>":-0.75,"<|start|>":-1.75}]},"finish_reason":"stop","stop_reason":null}],`+
		`"usage":{"prompt_tokens":1,"total_tokens":5,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}}`,
		h.post("/v1/completions", `{"prompt":[97],"logprobs":2}`))
	require.Contains(t, h.post("/v1/completions", `{"prompt":[97],"logprobs":0}`), `"top_logprobs":[{"a":0},`)
}

func TestCompletionsStop(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("one END two")}, nil)
	for body, want := range map[string]string{
		`"stop":"END"`: `"text":"one ","logprobs":null,"finish_reason":"stop","stop_reason":"END"`,
		`"stop":["nothing","END"],"include_stop_str_in_output":true`: `"text":"one END","logprobs":null,"finish_reason":"stop","stop_reason":"END"`,
		`"stop":["ENDLESS"]`:                            `"text":"one END two","logprobs":null,"finish_reason":"stop","stop_reason":null`,
		`"stop_token_ids":[69]`:                         `"text":"one ","logprobs":null,"finish_reason":"stop","stop_reason":69`,
		`"skip_special_tokens":false`:                   `"text":"one END two","logprobs":null,"finish_reason":"stop","stop_reason":null`,
		`"skip_special_tokens":false,"ignore_eos":true`: `"text":"one END two<|end|>","logprobs":null,"finish_reason":"stop","stop_reason":null`,
		`"max_tokens":3`:                                `"text":"one","logprobs":null,"finish_reason":"length","stop_reason":null`,
	} {
		require.Contains(t, h.post("/v1/completions", `{"prompt":"x",`+body+`}`), want, body)
		var text strings.Builder
		events := h.events("/v1/completions", `{"prompt":"x","stream":true,`+body+`}`)
		for _, e := range events {
			var chunk completionReply
			require.NoError(t, json.Unmarshal([]byte(e), &chunk))
			text.WriteString(chunk.Choices[0].Text)
		}
		require.Contains(t, want, `"text":"`+text.String()+`",`, "the stream says the same: %s", body)
		require.Contains(t, events[len(events)-1], want[strings.Index(want, `"logprobs"`):], body)
	}
}

func TestCompletionsStream(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("é€x")}, nil)
	head := `{"id":"cmpl-ID","object":"text_completion","created":1700000000,"model":"m","choices":[`
	chunk := func(text, finish string) string {
		return head + `{"index":0,"text":"` + text + `","logprobs":null,"finish_reason":` + finish + `,"stop_reason":null}]}`
	}
	require.Equal(t, []string{
		chunk("é", "null"), chunk("€", "null"), chunk("x", "null"), chunk("", `"stop"`),
		head + `],"usage":{"prompt_tokens":1,"total_tokens":8,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}`,
	}, h.events("/v1/completions", `{"prompt":[97],"stream":true,"stream_options":{"include_usage":true}}`))
	events := h.events("/v1/completions", `{"prompt":[97],"stream":true,"return_token_ids":true,"max_tokens":4}`)
	require.Equal(t, []string{
		head + `{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[195],"prompt_token_ids":[97]}]}`,
		head + `{"index":0,"text":"é","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[169]}]}`,
		head + `{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[226]}]}`,
		head + `{"index":0,"text":"","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":[130]}]}`,
		head + `{"index":0,"text":"�","logprobs":null,"finish_reason":"length","stop_reason":null,"weight_versions":[{"version":"default","start":0,"end":4}]}]}`,
	}, events, "a character that was cut off is U+FFFD")
}

func TestEcho(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	require.Contains(t, h.post("/v1/completions", `{"prompt":"ab","echo":true}`), `"text":"abhi"`)
	require.Contains(t, h.post("/v1/completions", `{"prompt":"ab","echo":true,"max_tokens":0}`), `"text":"ab","logprobs":null,"finish_reason":"length"`)
	h.refuses("/v1/completions", `{"prompt":"ab","echo":true,"logprobs":1}`, 400, "this engine does not tell the logprobs of prompts")
	h.refuses("/v1/completions", `{"prompt":"ab","echo":true,"stream":true}`, 400, "echo together with stream")
}

func TestGenerate(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("ab")}, nil)
	require.JSONEq(t, `{"request_id":"mine","choices":[{"index":0,"token_ids":[97,98,256],"logprobs":{"content":[`+
		`{"token_id":97,"logprob":0,"top_logprobs":[{"token_id":97,"logprob":0},{"token_id":98,"logprob":-1}]},`+
		`{"token_id":98,"logprob":-0.25,"top_logprobs":[{"token_id":98,"logprob":-0.25},{"token_id":99,"logprob":-1.25}]},`+
		`{"token_id":256,"logprob":-0.5,"top_logprobs":[{"token_id":256,"logprob":-0.5},{"token_id":257,"logprob":-1.5}]}]},`+
		`"finish_reason":"stop","stop_reason":null,"weight_versions":[{"version":"default","start":0,"end":3}]}],"prompt_logprobs":null,`+
		`"usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`,
		h.post("/inference/v1/generate", `{"request_id":"mine","token_ids":[1,2],"sampling_params":{"logprobs":2,"max_tokens":1000}}`))
	require.Equal(t, 398, h.engine.Requests()[0].Sampling.MaxTokens, "as many as fit")
	require.Equal(t, []string{
		`{"request_id":"x","choices":[{"index":0,"token_ids":[97],"logprobs":null,"finish_reason":null,"stop_reason":null,"weight_versions":null}],"prompt_logprobs":null}`,
		`{"request_id":"x","choices":[{"index":0,"token_ids":[98],"logprobs":null,"finish_reason":null,"stop_reason":null,"weight_versions":null}],"prompt_logprobs":null}`,
		`{"request_id":"x","choices":[{"index":0,"token_ids":[],"logprobs":null,"finish_reason":"stop","stop_reason":98,"weight_versions":[{"version":"default","start":0,"end":2}]}],"prompt_logprobs":null}`,
	}, h.events("/inference/v1/generate", `{"request_id":"x","token_ids":[1],"stream":true,"sampling_params":{"stop_token_ids":[98]}}`))
	open := make(chan struct{})
	close(open)
	scored := start(t, scripted.Options{Respond: says("ab")}, func(o *Options) {
		o.Engine = scoring{o.Engine.(*scripted.Engine), new(atomic.Int64), open}
	})
	var told []bool
	for _, e := range scored.events("/inference/v1/generate", `{"token_ids":[1,2],"stream":true,"stream_options":{"include_usage":true},"sampling_params":{"n":2,"prompt_logprobs":0}}`) {
		told = append(told, !strings.Contains(e, `"prompt_logprobs":null`))
	}
	require.Equal(t, append([]bool{true}, make([]bool, len(told)-1)...), told, "the first chunk alone tells the logprobs of the prompt")
	require.Greater(t, len(told), 4)
	h.refuses("/inference/v1/generate", `{"token_ids":[1]}`, 400, "sampling_params is missing")
	h.refuses("/inference/v1/generate", `{"token_ids":[],"sampling_params":{}}`, 400, "the prompt is empty")
	h.refuses("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{},"output_mode":"text"}`, 400, "output_mode")
}

func TestTokenize(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	require.JSONEq(t, `{"count":3,"max_model_len":400,"tokens":[258,195,169],"token_strs":null}`, h.post("/tokenize", `{"prompt":"é"}`))
	require.JSONEq(t, `{"count":2,"max_model_len":400,"tokens":[97,257],"token_strs":["a","<|start|>"]}`,
		h.post("/tokenize", `{"prompt":"a<|start|>","add_special_tokens":false,"return_token_strs":true}`))
	require.JSONEq(t, `{"count":9,"max_model_len":400,"tokens":[257,117,115,101,114,58,32,97,256],"token_strs":null}`,
		h.post("/tokenize", `{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`))
	require.JSONEq(t, `{"prompt":"é<|end|>"}`, h.post("/detokenize", `{"tokens":[195,169,256]}`))
	h.refuses("/tokenize", `{}`, 400, "give either prompt or messages")
	h.refuses("/tokenize", `{"messages":[]}`, 400, "messages is missing or empty")
	h.refuses("/detokenize", `{"tokens":[300]}`, 400, "token 0 is 300, allowed are 0 to 299")
	h.refuses("/detokenize", `{}`, 400, "tokens is missing")
}

// TestCompletionCapped: more tokens than fit are capped at what fits, echoed prompts or not.
func TestCompletionCapped(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	h.post("/v1/completions", `{"prompt":"x","max_tokens":399}`)
	require.Equal(t, 398, h.engine.Requests()[0].Sampling.MaxTokens)
}

// TestPenalties: they and min_tokens reach the engine on all routes; a stop string within the first min_tokens does not count, as in vLLM.
func TestPenalties(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("one END two END three")}, nil)
	const asked = `"min_tokens":5,"presence_penalty":0.5,"frequency_penalty":-1,"repetition_penalty":1.5,"max_tokens":30`
	h.post("/v1/completions", `{"prompt":"x",`+asked+`}`)
	h.post("/v1/chat/completions", `{`+user+`,`+asked+`}`)
	h.post("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{`+asked+`}}`)
	h.post("/v1/chat/completions", `{`+user+`,"min_tokens":5}`)
	for i, r := range h.engine.Requests() {
		s := r.Sampling
		require.Equal(t, 5, s.MinTokens)
		if i < 3 {
			require.Equal(t, []float64{0.5, -1, 1.5}, []float64{s.Presence, s.Frequency, s.Repetition})
			require.Equal(t, 30, s.MaxTokens)
		}
	}
	for least, want := range map[int]string{0: "one ", 6: "one ", 7: "one END two ", 14: "one END two ", 15: "one END two END three", 22: "one END two END three"} {
		text := &textStream{tokenizer: letters{}, stops: []string{"no", "END"}, least: least}
		out := ""
		for _, id := range (letters{}).Encode("one END two END three") {
			out += text.push(id)
		}
		require.Equal(t, want, out+text.end(), "least %d", least)
	}
	text, out := &textStream{tokenizer: letters{}, stops: []string{"ab", "xabyz"}, least: 3}, ""
	for _, id := range (letters{}).Encode("xabq ab") { // what was held back as the beginning of one holds the other
		out += text.push(id)
	}
	require.Equal(t, "xabq ", out+text.end())
}
