package serve

import (
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
)

func TestRefuses(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	for body, message := range map[string]string{
		`{`:                     "the request is not JSON",
		`{} {}`:                 "the request is not JSON",
		`[]`:                    "must be a JSON object",
		" ":                     "must be a JSON object",
		"{\"prompt\":\"\xff\"}": "not valid UTF-8",
		`{}`:                    "the prompt is missing",
		`{"prompt":null}`:       "the prompt is missing",
		`{"prompt":"","add_special_tokens":false}`: "the prompt is empty",
		`{"prompt":7}`:                                                           "the prompt must be a string",
		`{"prompt":[1,"a"]}`:                                                     "the prompt must be a string",
		`{"prompt":[]}`:                                                          "the prompt is empty",
		`{"prompt":[[]]}`:                                                        "the prompt is empty",
		`{"prompt":[300]}`:                                                       "prompt token 0 is 300, allowed are 0 to 299",
		`{"prompt":[-1]}`:                                                        "prompt token 0 is -1",
		`{"prompt":[3000000000]}`:                                                "the prompt must be a string",
		`{"prompt":"x","max_tokens":0}`:                                          "max_tokens is 0",
		`{"prompt":"x","max_tokens":"7"}`:                                        "max_tokens: a JSON string does not fit, an integer is needed",
		`{"prompt":"x","temperature":-1}`:                                        "temperature is -1",
		`{"prompt":"x","temperature":"hot"}`:                                     "temperature: a JSON string does not fit, a number is needed",
		`{"prompt":"x","top_p":0}`:                                               "top_p is 0",
		`{"prompt":"x","top_k":-2}`:                                              "top_k is -2",
		`{"prompt":"x","min_p":1}`:                                               "min_p is 1",
		`{"prompt":"x","n":0}`:                                                   "n is 0, allowed are 1 to 256",
		`{"prompt":"x","n":257}`:                                                 "n is 257",
		`{"prompt":"x","n":2,"temperature":0}`:                                   "greedy sampling",
		`{"prompt":"x","seed":1.5}`:                                              "seed: a JSON number 1.5 does not fit",
		`{"prompt":"x","stream":"yes"}`:                                          "stream: a JSON string does not fit, true or false is needed",
		`{"prompt":"x","stop":7}`:                                                "stop must be a string or a list of strings",
		`{"prompt":"x","stop":[""]}`:                                             "stop[0] is empty",
		`{"prompt":"x","stop_token_ids":["a"]}`:                                  "stop_token_ids",
		`{"prompt":"x","logprobs":21}`:                                           "logprobs is 21, allowed are 0 to 20",
		`{"prompt":"x","logprobs":-1}`:                                           "logprobs is -1",
		`{"prompt":"x","logprobs":true}`:                                         "logprobs: a JSON bool does not fit",
		`{"prompt":"x","prompt_logprobs":1}`:                                     "prompt_logprobs is 1; only 0",
		`{"prompt":"x","suffix":"y"}`:                                            "suffix is not supported",
		`{"prompt":"x","best_of":2}`:                                             "best_of is not supported",
		`{"prompt":"x","logit_bias":{"5":1}}`:                                    "logit_bias is not supported",
		`{"prompt":"x","min_tokens":17}`:                                         "min_tokens is 17, it must be at least 0 (off) and at most max_tokens, 16",
		`{"prompt":"x","presence_penalty":2.5}`:                                  "presence_penalty is 2.5, it must be from -2 to 2",
		`{"prompt":"x","frequency_penalty":-3}`:                                  "frequency_penalty is -3, it must be from -2 to 2",
		`{"prompt":"x","repetition_penalty":0}`:                                  "repetition_penalty is 0, it must be above 0",
		`{"prompt":"x","use_beam_search":true}`:                                  "use_beam_search is not supported",
		`{"prompt":"x","allowed_token_ids":[1]}`:                                 "allowed_token_ids is not supported",
		`{"prompt":"x","bad_words":["a"]}`:                                       "bad_words is not supported",
		`{"prompt":"x","truncate_prompt_tokens":1}`:                              "truncate_prompt_tokens is not supported",
		`{"prompt":"x","structured_outputs":{"a":1}}`:                            "structured_outputs asks for no form that is known; allowed are json, json_object, regex and choice",
		`{"prompt":"x","structured_outputs":{"json":null},"response_format":{}}`: "structured_outputs asks for no form that is known",
		`{"prompt":"x","structured_outputs":{"grammar":"root ::= x"}}`:           "of a grammar or a structural tag is not supported",
		`{"prompt":"x","structured_outputs":{"regex":"a","json_object":true}}`:   "structured_outputs asks for 2 forms",
		`{"prompt":"x","structured_outputs":{"regex":"(?=a)"}}`:                  "structured_outputs: error parsing regexp",
		`{"prompt":"x","structured_outputs":{"json":{"not":{}}}}`:                `structured_outputs: schema: "not" is not supported`,
		`{"prompt":"x","structured_outputs":{"choice":["a"]},"response_format":{"type":"json_object"}}`: "are both given",
		`{"prompt":"x","structured_outputs":{"choice":["a"]}}`:                                          "structured_outputs is not supported by this server: its engine does not constrain decoding",
		`{"prompt":"x","response_format":{"type":"json"}}`:                                              "response_format",
		`{"prompt":"` + strings.Repeat("x", 400) + `"}`:                                                 "maximum context length is 400 tokens. However, your messages resulted in 401 tokens",
		`{"prompt":["` + strings.Repeat(`x","`, 1024) + `"]}`:                                           "more than the 1024 that the queue holds",
	} {
		h.refuses("/v1/completions", body, 400, message)
	}
	h.refuses("/v1/completions", `{"prompt":["a","b","c","d","e"],"n":250}`, 400, "more than the 1024 that the queue holds")
	h.refuses("/v1/completions", `{"model":"other","prompt":"x"}`, 404, "The model `other` does not exist.")
	for path, status := range map[string]int{"/v1/completions": 405, "/v1/models/none": 404, "/nowhere": 404} {
		got, body := h.do("GET", path, "")
		require.Equal(t, status, got, path)
		require.Contains(t, body, `{"error":{"message":`)
	}
	var e errorBody
	_, body := h.do("POST", "/v1/completions", `{"prompt":"x","temperature":"hot"}`)
	require.NoError(t, json.Unmarshal([]byte(body), &e))
	require.Equal(t, "temperature", *e.Error.Param, "not the name of an inner type")
	require.Empty(t, h.engine.Requests(), "nothing of this reached the engine")
}

func TestBody(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.MaxBody, o.ReadTimeout = 100, 50*time.Millisecond })
	h.refuses("/v1/completions", `{"prompt":"`+strings.Repeat("x", 100)+`"}`, 413, "more than the 100 bytes")
	r := h.request(context.Background(), "POST", "/v1/completions", `{"prompt":"x"}`)
	r.Header.Set("Content-Type", "text/plain")
	resp, err := h.http.Client().Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 415, resp.StatusCode)
	reader, writer := io.Pipe()
	defer writer.Close()
	r, err = http.NewRequest("POST", h.http.URL+"/v1/completions", reader) // a body that never comes
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err = h.http.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 400, resp.StatusCode)
}

// A reply may take longer than a body may: the deadline of reading ends with the body.
func TestReadTimeoutEnds(t *testing.T) {
	h := start(t, slow(), func(o *Options) { o.ReadTimeout = 30 * time.Millisecond })
	require.Len(t, h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":60,"ignore_eos":true}}`)().Choices[0].TokenIDs, 60)
}

func TestQueue(t *testing.T) {
	h := start(t, slow(), func(o *Options) { o.MaxQueue = 3 })
	running := h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":100,"ignore_eos":true}}`)
	h.started(1)
	h.refuses("/v1/completions", `{"prompt":"x","n":3}`, 429, "1 completions are running or waiting, 3 are allowed")
	resp, err := h.http.Client().Do(h.request(context.Background(), "POST", "/v1/completions", `{"prompt":"x","n":3}`))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	h.post("/v1/completions", `{"prompt":"x","n":2,"max_tokens":1}`)
	require.Len(t, running().Choices[0].TokenIDs, 100)
	h.post("/v1/completions", `{"prompt":"x","n":3,"max_tokens":1}`)
}

func TestAPIKey(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.APIKey = "secret" })
	h.post("/v1/completions", `{"prompt":"x"}`)
	for _, header := range []string{"", "Bearer wrong", "Basic secret", "secret"} {
		for _, path := range []string{"/v1/models", "/metrics", "/pause", "/nowhere"} {
			r, err := http.NewRequest("GET", h.http.URL+path, nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", header)
			resp, err := h.http.Client().Do(r)
			require.NoError(t, err)
			data, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, 401, resp.StatusCode)
			require.NotContains(t, string(data), `"Bearer secret"`)
		}
	}
	resp, err := http.Get(h.http.URL + "/health")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	http.DefaultClient.CloseIdleConnections()
}

// Without a key a page in a browser cannot use the server: not by another name of this machine, nor from another origin.
func TestLoopbackOnly(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{"localhost:8000", "", 200},
		{"127.0.0.1", "http://localhost:3000", 200},
		{"[::1]:8000", "http://127.0.0.1", 200},
		{"evil.example", "", 403},
		{"127.0.0.1.evil.example:8000", "", 403},
		{"10.0.0.1:8000", "", 403},
		{"localhost", "https://evil.example", 403},
		{"localhost", "null", 403},
	} {
		r := h.request(context.Background(), "POST", "/resume", "")
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		resp, err := h.http.Client().Do(r)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, c.status, resp.StatusCode, "%v", c)
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(Options{})
	require.ErrorContains(t, err, "an engine and a tokenizer are needed")
	e := scripted.New(scripted.Options{})
	defer e.Close()
	_, err = New(Options{Engine: e, Tokenizer: letters{}})
	require.ErrorContains(t, err, "the model has no name")
	_, err = New(Options{Engine: e, Tokenizer: letters{}, Models: []string{"m"}})
	require.ErrorContains(t, err, "Vocab is 0")
}

// Whatever is sent, the answer is a reply or an error with a status below 500, and nothing is left behind.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"prompt":"x"}`, `{"prompt":[[1],[2]],"n":2,"logprobs":3,"stream":true}`, `{"token_ids":[1],"sampling_params":{"n":2}}`,
		`{` + user + `,` + weather + `,"stream":true,"logprobs":true,"top_logprobs":2}`, `{"prompt":"x","stop":["i",null],"stop_token_ids":[104]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}],"tool_choice":{}}`, `{"tokens":[1,2]}`, `{"new_version":"x"}`,
		`{"prompt":"x","echo":true,"max_tokens":0}`, `{"sampling":{"n":9}}`, `{"prompt":"x","seed":9223372036854775807,"n":3}`, "[", `{"prompt":1e999}`,
	} {
		for i := range uint8(6) {
			f.Add(i, []byte(body))
		}
	}
	engine := scripted.New(scripted.Options{Respond: says("hi<tool_call>{}</tool_call>"), MaxModelLen: 64, Decode: func(ids []int32) string { return letters{}.Decode(ids, false) }})
	f.Cleanup(func() { _ = engine.Close() })
	s, err := New(Options{Engine: engine, Tokenizer: letters{}, Renderer: lines{}, StopIDs: []int32{endOfTurn}, Models: []string{"m"}, Vocab: vocabulary})
	if err != nil {
		f.Fatal(err)
	}
	paths := []string{"/v1/completions", "/v1/chat/completions", "/inference/v1/generate", "/tokenize", "/detokenize", "/update_weight_version"}
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		r, err := http.NewRequest("POST", "http://localhost"+paths[int(route)%len(paths)], strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		w := &recorder{header: http.Header{}}
		s.ServeHTTP(w, r)
		if w.status >= 500 || w.status == 0 {
			t.Fatalf("status %d: %s", w.status, w.body.String())
		}
		if kind := w.header.Get("Content-Type"); kind == "application/json" && !json.Valid([]byte(w.body.String())) {
			t.Fatalf("not JSON: %s", w.body.String())
		}
		if s.queue.completions.Load() != 0 {
			t.Fatal("a place is taken")
		}
	})
}

type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(s int)   { r.status = s }
func (r *recorder) Flush()              {}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		return 0, errors.New("no status")
	}
	return r.body.Write(b)
}

// Whole numbers may be written as floats, on every route.
func TestWholeNumbersMayBeFloats(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	const shared = `"n":2.0,"seed":0.0,"top_k":5.0,"min_tokens":1.0,"best_of":2.0,"thinking_token_budget":-1.0,"max_tokens":5.0`
	whole := strings.ReplaceAll(shared, ".0", "")
	for path, body := range map[string][2]string{
		"/v1/completions":        {`{"prompt":"x","logprobs":1.0,`, `{"prompt":"x","logprobs":1,`},
		"/v1/chat/completions":   {`{` + user + `,"max_completion_tokens":4.0,"logprobs":true,"top_logprobs":1.0,`, `{` + user + `,"max_completion_tokens":4,"logprobs":true,"top_logprobs":1,`},
		"/inference/v1/generate": {`{"token_ids":[97],"sampling_params":{"logprobs":1.0,`, `{"token_ids":[97],"sampling_params":{"logprobs":1,`},
	} {
		end := "}"
		if strings.Contains(body[0], "sampling_params") {
			end = "}}"
		}
		require.Equal(t, h.post(path, body[1]+whole+end), h.post(path, body[0]+shared+end), path)
	}
	h.refuses("/v1/completions", `{"prompt":"x","max_tokens":5.5}`, 400, "max_tokens: a JSON number 5.5 does not fit, an integer is needed")
	h.refuses("/inference/v1/generate", `{"token_ids":[97],"sampling_params":{"top_k":5.5}}`, 400, "sampling_params.top_k: a JSON number 5.5 does not fit, an integer is needed")
}
