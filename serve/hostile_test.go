package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
)

// Clients that announce a body and never send it get their answer, and do not keep the connection: with a key and without.
func TestBodiesThatNeverCome(t *testing.T) {
	for _, c := range []struct {
		name, line, header string
		key                string
		status             int
	}{
		{"no key", "POST /v1/completions", "Content-Type: application/json", "secret", 401},
		{"another host", "POST /v1/completions", "Host: evil.example", "", 403},
		{"no route", "POST /nowhere", "", "", 404},
		{"wrong method", "PUT /v1/completions", "", "", 405},
		{"wrong type", "POST /v1/completions", "Content-Type: text/plain", "", 415},
		{"health", "GET /health", "", "secret", 200},
		{"resume", "POST /resume", "", "", 200},
		{"the body itself", "POST /v1/completions", "Content-Type: application/json", "", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.APIKey, o.ReadTimeout = c.key, 100*time.Millisecond })
			conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			host := "Host: localhost\r\n"
			if strings.HasPrefix(c.header, "Host:") {
				host = ""
			}
			fmt.Fprintf(conn, "%s HTTP/1.1\r\n%sContent-Length: 1000\r\n%s\r\n\r\n", c.line, host, strings.TrimSuffix(c.header, "\r\n"))
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
			reader := bufio.NewReader(conn)
			reply, err := http.ReadResponse(reader, nil)
			require.NoError(t, err, "an answer comes")
			require.Equal(t, c.status, reply.StatusCode)
			_, err = io.Copy(io.Discard, reader)
			require.NoError(t, err, "the connection ends")
		})
	}
}

// A whole reply to a client that does not read it ends as a stream does.
func TestWholeReplyThatNobodyReads(t *testing.T) {
	h := start(t, scripted.Options{Respond: scripted.Model(vocabulary)}, func(o *Options) { o.WriteTimeout = 100 * time.Millisecond })
	ended := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		h.server.ServeHTTP(w, r)
	}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	body := `{` + user + `,"n":256,"max_tokens":100,"ignore_eos":true,"logprobs":true,"top_logprobs":20}` // some 40 MB of reply
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the reply holds its connection")
	}
}

// counting counts the bytes that are tokenized and holds them while gate is closed.
type counting struct {
	letters
	bytes *atomic.Int64
	gate  chan struct{}
}

func (c counting) Encode(text string) []int32 {
	c.bytes.Add(int64(len(text)))
	if c.gate != nil {
		<-c.gate
	}
	return c.letters.Encode(text)
}

// No text is tokenized that cannot fit, and none beyond the queue.
func TestTextBeforeLimits(t *testing.T) {
	var bytes atomic.Int64
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.Tokenizer = counting{bytes: &bytes}; o.MaxQueue = 4 })
	long := strings.Repeat("x", 2<<20)
	h.refuses("/v1/completions", `{"prompt":"`+long+`"}`, 400, "the prompt has 2097152 bytes")
	h.refuses("/v1/completions", `{"prompt":["a","`+long+`"]}`, 400, "the prompt has 2097152 bytes")
	h.refuses("/v1/completions", `{"prompt":["a","b","c","d","e"]}`, 400, "more than the 4 that the queue holds")
	h.refuses("/v1/completions", `{"prompt":["a","b","c"],"n":2}`, 400, "more than the 4 that the queue holds")
	h.refuses("/v1/completions", `{"prompt":"a","n":5}`, 400, "more than the 4 that the queue holds")
	h.refuses("/v1/completions", `{"prompt":"a","temperature":-1}`, 400, "temperature is -1")
	h.refuses("/tokenize", `{"prompt":"`+long+`"}`, 400, "the prompt has 2097152 bytes")
	for _, path := range []string{"/tokenize", "/v1/chat/completions"} {
		h.refuses(path, `{"messages":[{"role":"user","content":"`+long+`"}]}`, 400, "the conversation has ")
		h.refuses(path, `{`+user+`,"tools":[{"type":"function","function":{"name":"f","description":"`+long+`"}}]}`, 400, "the conversation has ")
	}
	require.Zero(t, bytes.Load(), "nothing was tokenized")
	h.refuses("/detokenize", `{"tokens":[`+strings.Repeat("1,", 1<<17)+`1]}`, 400, "131073 tokens")
}

// Texts that are tokenized take places of the queue, too; those of /tokenize and /detokenize have a queue of their own.
func TestTokenizingTakesAPlace(t *testing.T) {
	for path, other := range map[string]string{"/v1/completions": "/tokenize", "/tokenize": "/v1/completions"} {
		t.Run(path[1:], func(t *testing.T) {
			var bytes atomic.Int64
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			defer open() // also where the test fails
			h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.Tokenizer = counting{bytes: &bytes, gate: gate}; o.MaxQueue = 2 })
			done := make(chan int, 3)
			ask := func(path string) {
				resp, err := h.http.Client().Do(h.request(context.Background(), "POST", path, `{"prompt":"abc"}`))
				if err != nil {
					done <- 0
					return
				}
				resp.Body.Close()
				done <- resp.StatusCode
			}
			held := func() int64 { return h.server.queue.completions.Load() + h.server.queue.texts.Load() }
			go ask(path)
			go ask(path)
			h.until("both have a place", func() bool { return held() == 2 })
			if path == "/tokenize" {
				h.refuses("/tokenize", `{"prompt":"abc"}`, 429, "2 texts are being tokenized or waiting, 2 are allowed")
				h.refuses("/detokenize", `{"tokens":[1]}`, 429, "2 texts are being tokenized or waiting, 2 are allowed")
			} else {
				h.refuses("/v1/completions", `{"prompt":"abc"}`, 429, "2 completions are running or waiting, 2 are allowed")
			}
			go ask(other)
			h.until("the other has its own", func() bool { return held() == 3 })
			open()
			for range 3 {
				require.Equal(t, 200, <-done)
			}
			h.until("all left", func() bool { return held() == 0 })
		})
	}
}

// While completions are sampled texts can be tokenized.
func TestTokenizeBesideAFullQueue(t *testing.T) {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open() // also where the test fails
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) {
		o.Engine, o.MaxQueue = scoring{o.Engine.(*scripted.Engine), new(atomic.Int64), gate}, 1
	})
	done := make(chan int, 1)
	go func() {
		resp, err := h.http.Client().Do(h.request(context.Background(), "POST", "/v1/completions", `{"prompt":"abc","prompt_logprobs":0}`))
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	h.until("it has the only place", func() bool { return h.server.queue.completions.Load() == 1 })
	for path, body := range map[string]string{"/tokenize": `{"prompt":"abc"}`, "/detokenize": `{"tokens":[1]}`} {
		resp, err := h.http.Client().Do(h.request(context.Background(), "POST", path, body))
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode, path)
	}
	h.refuses("/v1/completions", `{"prompt":"abc"}`, 429, "1 completions are running or waiting, 1 are allowed")
	open()
	require.Equal(t, 200, <-done)
}

// scoring is an engine that scores prompts when it may.
type scoring struct {
	*scripted.Engine
	scored *atomic.Int64
	gate   chan struct{}
}

func (s scoring) Logprobs(_ context.Context, ids []int32) ([]float32, error) {
	s.scored.Add(1)
	<-s.gate
	return make([]float32, len(ids)-1), nil
}

var _ engines.Logprober = scoring{}

// Prompts are scored within the queue's limit.
func TestScoresTakePlaces(t *testing.T) {
	var scored atomic.Int64
	gate := make(chan struct{})
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) {
		o.Engine, o.MaxQueue = scoring{o.Engine.(*scripted.Engine), &scored, gate}, 2
	})
	done := make(chan string, 1)
	go func() {
		resp, err := h.http.Client().Do(h.request(context.Background(), "POST", "/v1/completions", `{"prompt":"abc","n":2,"prompt_logprobs":0}`))
		if err != nil {
			done <- err.Error()
			return
		}
		resp.Body.Close()
		done <- resp.Status
	}()
	h.until("it is scored", func() bool { return scored.Load() == 1 })
	for _, more := range []string{`"prompt_logprobs":0`, `"echo":true,"logprobs":1`, `"echo":true,"logprobs":1,"max_tokens":0`} {
		h.refuses("/v1/completions", `{"prompt":"abc",`+more+`}`, 429, "2 completions are running or waiting")
	}
	h.refuses("/v1/chat/completions", `{`+user+`,"prompt_logprobs":0}`, 429, "2 completions are running or waiting")
	h.refuses("/inference/v1/generate", `{"token_ids":[1,2],"sampling_params":{"prompt_logprobs":0}}`, 429, "2 completions are running or waiting")
	require.EqualValues(t, 1, scored.Load())
	close(gate)
	require.Equal(t, "200 OK", <-done)
}

// A panic while a choice runs ends its request, and the server goes on.
func TestPanicInAChoice(t *testing.T) {
	for name, change := range map[string]func(o *scripted.Options, panics *atomic.Bool) func(*Options){
		"engine": func(o *scripted.Options, panics *atomic.Bool) func(*Options) {
			o.Respond = func(r engines.Request) (engines.Completion, error) {
				if panics.Load() {
					panic("planted")
				}
				return says("hi")(r)
			}
			return nil
		},
		"text": func(_ *scripted.Options, panics *atomic.Bool) func(*Options) {
			return func(o *Options) { o.Tokenizer = panicking{panics: panics} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			var panics atomic.Bool
			so := scripted.Options{Respond: says("hi")}
			changed := change(&so, &panics)
			var warned strings.Builder
			h := start(t, so, func(o *Options) {
				if changed != nil {
					changed(o)
				}
				o.Warn = func(text string) { warned.WriteString(text) }
			})
			panics.Store(true)
			h.refuses("/v1/completions", `{"prompt":"x","n":2}`, 500, "panicked: planted")
			require.Contains(t, warned.String(), "hostile_test.go", "the stack is told")
			if name == "text" { // the first letter is told before the panic
				events := h.events("/v1/completions", `{"prompt":"x","n":2,"stream":true}`)
				require.Contains(t, events[len(events)-1], "panicked: planted")
			}
			panics.Store(false)
			h.post("/v1/completions", `{"prompt":"x","n":2}`)
		})
	}
}

// panicking is a tokenizer that panics over what was sampled.
type panicking struct {
	letters
	panics *atomic.Bool
}

func (p panicking) Bytes(id int32) []byte {
	if id == 'i' && p.panics.Load() {
		panic("planted")
	}
	return p.letters.Bytes(id)
}

// Names and lists that a request makes the server keep or repeat are short.
func TestLongNames(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	long := strings.Repeat("x", 5000)
	h.refuses("/inference/v1/generate", `{"request_id":"`+long+`","token_ids":[1],"sampling_params":{}}`, 400, "request_id has 5000 bytes")
	h.refuses("/update_weight_version", `{"new_version":"`+long+`"}`, 400, "new_version has 5000 bytes")
	h.refuses("/v1/completions", `{"prompt":"x","stop":"`+long+`"}`, 400, "stop[0] has 5000 bytes")
	_, body := h.do("POST", "/v1/completions", `{"prompt":"x","model":"`+long+`"}`)
	require.Less(t, len(body), 1000)
	for i := range 3 * keptVersions {
		require.NoError(t, h.server.weights.change(t.Context(), nil, nothing), i)
	}
	require.LessOrEqual(t, len(h.server.weights.names.of), keptVersions)
	_, name := h.server.weights.current()
	require.Equal(t, "default", name)
}

// A conversation of more parts than the context has tokens is refused before it is taken apart, and long lists before they are whole.
func TestManyParts(t *testing.T) {
	var bytes atomic.Int64
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.Tokenizer = counting{bytes: &bytes} })
	many := func(part string, n int) string { return strings.TrimSuffix(strings.Repeat(part+",", n), ",") }
	message, call := `{"role":"user","content":""}`, `{"type":"function","function":{"name":"f","arguments":"{}"}}`
	for _, path := range []string{"/tokenize", "/v1/chat/completions"} {
		h.refuses(path, `{"messages":[`+many(message, 401)+`]}`, 400, "the conversation has 401 messages")
		h.refuses(path, `{"messages":[{"role":"assistant","content":"","tool_calls":[`+many(call, 401)+`]}]}`, 400, "the conversation has 402 messages")
		h.refuses(path, `{`+user+`,"tools":[`+many(`{"type":"function","function":{"name":"f"}}`, 400)+`]}`, 400, "the conversation has 401 messages")
		h.refuses(path, `{"messages":[`+many("{}", 1<<16+1)+`]}`, 400, "a list has more than 65536 elements")
	}
	h.refuses("/v1/completions", `{"prompt":"x","stop":[`+many(`"a"`, 1<<16+1)+`]}`, 400, "a list has more than 65536 elements")
	require.Zero(t, bytes.Load())
}

// Bodies that are held at once are bounded together.
func TestBodiesHeldAtOnce(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, func(o *Options) { o.MaxBody, o.MaxHeld = 1000, 1500 })
	reader, writer := io.Pipe()
	r, err := http.NewRequest("POST", h.http.URL+"/v1/completions", reader)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	done := make(chan int, 1)
	go func() {
		resp, err := h.http.Client().Do(r)
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	head := `{"prompt":"x"`
	_, err = writer.Write([]byte(head + strings.Repeat(" ", 900)))
	require.NoError(t, err)
	h.until("it is held", func() bool { return h.server.queue.held.Load() >= 900 })
	h.refuses("/v1/completions", `{"prompt":"x"`+strings.Repeat(" ", 700)+`}`, 429, "requests of more than 1500 bytes")
	_, err = writer.Write([]byte("}"))
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Equal(t, 200, <-done)
	require.Zero(t, h.server.queue.held.Load())
	h.post("/v1/completions", `{"prompt":"x"`+strings.Repeat(" ", 700)+`}`)
}

// What is not a text, a list of texts, ids or lists of ids is refused, however long.
func TestPromptForms(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("hi")}, nil)
	for body, ids := range map[string]int{`"ab"`: 1, `["ab","c"]`: 2, `[1,2]`: 1, `[[1],[2,3]]`: 2, ` [ [1] ] `: 1} {
		var out completionReply
		require.NoError(t, json.Unmarshal([]byte(h.post("/v1/completions", `{"prompt":`+body+`}`)), &out))
		require.Len(t, out.Choices, ids, body)
	}
	for _, body := range []string{`[1,[2]]`, `[[1],2]`, `["a",1]`, `[1,"a"]`, `[null]`, `[[null]]`, `[1.5]`, `{}`, `true`, `[{}]`, `[3000000000]`} {
		h.refuses("/v1/completions", `{"prompt":`+body+`}`, 400, "the prompt must be a string")
	}
	h.refuses("/v1/completions", `{"prompt":[]}`, 400, "the prompt is empty")
	h.refuses("/v1/completions", `{"prompt":[[],[1]]}`, 400, "the prompt is empty")
	h.refuses("/v1/completions", `{"prompt":[`+strings.Repeat("[],", 5000)+`[1]]}`, 400, "more than the 1024 that the queue holds")
}
