// Package vllmtest is a server with vLLM's routes and no model, for benchmarks and long tests of what samples from it: it
// answers a prompt by its length, after a fixed time, with replies that were encoded once, so that what is measured is the
// client. It knows /inference/v1/generate, /v1/completions and /v1/chat/completions.
//
// It does not compute with a model, and it does not update weights.
package vllmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Reply is one completion. Its logprobs are made up.
type Reply struct {
	TokenIDs []int32
	Text     string // of /v1/chat/completions
}

// Options say what the server answers.
type Options struct {
	Replies []Reply       // of the turns of a conversation
	First   int           // tokens of the first turn's prompt
	Each    int           // tokens by which the prompt of each turn is longer than the one before
	Context int           // that the server claims to have
	Delay   time.Duration // of a completion
	Faults  float64       // share of the completions that fail: 503, a closed connection, half a reply, or a long wait
	Seed    uint64        // of the faults
}

// Server is an http.Handler.
type Server struct {
	options  Options
	native   [][]byte // bodies of the replies
	plain    [][]byte
	chat     [][]byte
	requests atomic.Int64 // completions asked for
	faults   atomic.Int64
	buffers  sync.Pool
	mu       sync.Mutex
	random   *rand.Rand
}

// New encodes the replies.
func New(o Options) (*Server, error) {
	if len(o.Replies) == 0 || o.Each < 1 || o.Context < 2 {
		return nil, fmt.Errorf("vllmtest: there must be a reply, and each and context must be positive")
	}
	s := &Server{options: o, random: rand.New(rand.NewPCG(o.Seed, 0))}
	s.buffers.New = func() any { return new(bytes.Buffer) }
	for i, r := range o.Replies {
		for _, f := range []struct {
			of   func(Reply, int) any
			into *[][]byte
		}{{native, &s.native}, {completions, &s.plain}, {chat, &s.chat}} {
			body, err := json.Marshal(f.of(r, o.First+i*o.Each))
			if err != nil {
				return nil, fmt.Errorf("vllmtest: %w", err)
			}
			*f.into = append(*f.into, body)
		}
	}
	return s, nil
}

// Requests is how many completions were asked for, Faults how many of them failed on purpose.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Faults counts the completions that failed on purpose.
func (s *Server) Faults() int64 { return s.faults.Load() }

type object = map[string]any

// logprob has as many digits as Python writes.
func logprob(i int) float64 { return -0.0625 - float64((i*2654435761)%1000003)/1234567.891 }

func usage(prompt, n int) object {
	return object{"prompt_tokens": prompt, "total_tokens": prompt + n, "completion_tokens": n, "prompt_tokens_details": object{"cached_tokens": prompt / 16 * 16}}
}

// native has the order of vLLM's own fields.
func native(r Reply, prompt int) any {
	type entry struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []byte  `json:"bytes"`
		Top     []any   `json:"top_logprobs"`
		TokenID int32   `json:"token_id"`
	}
	var content []entry
	for i, id := range r.TokenIDs {
		content = append(content, entry{"token_id:" + strconv.Itoa(int(id)), logprob(i), nil, []any{}, id})
	}
	type choice struct {
		Index    int     `json:"index"`
		Logprobs any     `json:"logprobs"`
		Reason   string  `json:"finish_reason"`
		TokenIDs []int32 `json:"token_ids"`
		Stop     any     `json:"stop_reason"`
		Versions any     `json:"weight_versions"`
	}
	return nativeReply{"generate-tokens-0", []any{choice{
		0, object{"content": content}, "stop", r.TokenIDs, nil, []any{object{"version": version, "start": 0, "end": len(r.TokenIDs)}},
	}}, nil, usage(prompt, len(r.TokenIDs))}
}

type nativeReply struct {
	ID             string `json:"request_id"`
	Choices        []any  `json:"choices"`
	PromptLogprobs []any  `json:"prompt_logprobs"`
	Usage          object `json:"usage"`
}

func completions(r Reply, prompt int) any {
	var tokens []string
	var logprobs []float64
	for i, id := range r.TokenIDs {
		tokens, logprobs = append(tokens, "token_id:"+strconv.Itoa(int(id))), append(logprobs, logprob(i))
	}
	return object{"id": "cmpl-0", "object": "text_completion", "created": 0, "model": model, "choices": []any{object{
		"index": 0, "text": r.Text, "token_ids": r.TokenIDs, "logprobs": object{"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": nil, "text_offset": []int{}},
		"finish_reason": "stop", "stop_reason": nil,
	}}, "usage": usage(prompt, len(r.TokenIDs))}
}

func chat(r Reply, prompt int) any {
	var content []any
	for i, id := range r.TokenIDs {
		content = append(content, object{"token": "token_id:" + strconv.Itoa(int(id)), "logprob": logprob(i), "bytes": nil, "top_logprobs": []any{}})
	}
	return object{"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": model, "choices": []any{object{
		"index": 0, "message": object{"role": "assistant", "content": r.Text}, "token_ids": r.TokenIDs, "logprobs": object{"content": content},
		"finish_reason": "stop", "stop_reason": nil,
	}}, "usage": usage(prompt, len(r.TokenIDs))}
}

const (
	model   = "policy"
	version = "0"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if key, bodies := s.route(q.URL.Path); bodies != nil {
		s.complete(w, q, key, bodies)
		return
	}
	switch q.URL.Path {
	case "/health":
	case "/version":
		answer(w, object{"version": "0.0-test"})
	case "/v1/models":
		answer(w, object{"object": "list", "data": []any{object{"id": model, "object": "model", "max_model_len": s.options.Context}}})
	case "/weight_info":
		answer(w, object{"weight_version": version})
	case "/openapi.json":
		answer(w, object{"paths": object{"/inference/v1/generate": object{}, "/v1/completions": object{}, "/weight_info": object{}}})
	default:
		http.NotFound(w, q)
	}
}

// route is the key of a completion's prompt and the replies, by turn; nil: the path samples nothing.
func (s *Server) route(path string) (key string, bodies [][]byte) {
	switch path {
	case "/inference/v1/generate":
		return `"token_ids":`, s.native
	case "/v1/completions":
		return `"prompt":`, s.plain
	case "/v1/chat/completions":
		return "", s.chat
	}
	return "", nil
}

// turn is that of a request: by the length of the prompt in ids, which is the list after key, or by the number of answers in
// a chat. ok false: it is no turn of a conversation.
func (s *Server) turn(data []byte, key string) (turn int, ok bool) {
	if key == "" {
		return bytes.Count(data, []byte(`"assistant"`)), true
	}
	n := listLength(data, key)
	return (n - s.options.First) / s.options.Each, n >= s.options.First
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// complete answers a turn.
func (s *Server) complete(w http.ResponseWriter, q *http.Request, key string, bodies [][]byte) {
	b := s.buffers.Get().(*bytes.Buffer)
	defer s.buffers.Put(b)
	b.Reset()
	if _, err := b.ReadFrom(http.MaxBytesReader(w, q.Body, 16<<20)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	turn, ok := s.turn(b.Bytes(), key)
	if !ok {
		s.probe(w, b.Bytes())
		return
	}
	s.requests.Add(1)
	if s.fault(w, q) {
		return
	}
	time.Sleep(s.options.Delay)
	body := bodies[min(turn, len(bodies)-1)]
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // the client may be gone
}

var jsonType = []string{"application/json"}

// listLength counts the numbers of the list that follows key; -1: there is none.
func listLength(data []byte, key string) int {
	at := bytes.Index(data, []byte(key))
	if at < 0 {
		return -1
	}
	end := bytes.IndexByte(data[at:], ']')
	if end < 0 {
		return -1
	}
	return bytes.Count(data[at:at+end], []byte{','}) + 1
}

// probe answers what a client asks to find out what the server can do: one token, and the logprobs of the prompt.
func (s *Server) probe(w http.ResponseWriter, data []byte) {
	var in struct {
		TokenIDs []int32 `json:"token_ids"`
		Sampling struct {
			PromptLogprobs *int `json:"prompt_logprobs"`
		} `json:"sampling_params"`
	}
	if err := json.Unmarshal(data, &in); err != nil || len(in.TokenIDs) == 0 {
		http.Error(w, `{"error": {"message": "the prompt is shorter than the first turn's, and no probe"}}`, http.StatusBadRequest)
		return
	}
	out := native(Reply{TokenIDs: []int32{0}}, len(in.TokenIDs)).(nativeReply)
	if in.Sampling.PromptLogprobs != nil {
		logprobs := []any{nil}
		for _, id := range in.TokenIDs[1:] {
			logprobs = append(logprobs, object{strconv.Itoa(int(id)): object{"logprob": logprob(0)}})
		}
		out.PromptLogprobs = logprobs
	}
	answer(w, out)
}

// fault does one of the things that go wrong between a client and its server, at random.
func (s *Server) fault(w http.ResponseWriter, q *http.Request) bool {
	if s.options.Faults == 0 {
		return false
	}
	s.mu.Lock()
	happens, which := s.random.Float64() < s.options.Faults, s.random.IntN(4)
	s.mu.Unlock()
	if !happens {
		return false
	}
	s.faults.Add(1)
	switch which {
	case 0:
		http.Error(w, `{"error": {"message": "overloaded, on purpose"}}`, http.StatusServiceUnavailable)
	case 1:
		panic(http.ErrAbortHandler) // closes the connection
	case 2:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices": [{"token_ids": [1, 2`)
	default: // longer than any patience; ends with the client's
		<-q.Context().Done()
	}
	return true
}
