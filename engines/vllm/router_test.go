package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/enginetest"
)

// The suite on the scripted server; TestRealConformance runs it on vLLM.
func TestFakeConformance(t *testing.T) {
	for _, routes := range [][]string{allRoutes, allRoutes[1:]} {
		t.Run(routes[0], func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) enginetest.Subject {
				f := newFake(t)
				f.routes, f.noVersion = routes, routes[0] == "/v1/completions"
				return enginetest.Subject{
					Engine: connect(t, nil, f), Vocab: fakeVocab, Fixed: true, Distribution: true,
					Weights: func(version int32, err error) engines.Weights {
						w := fakeWeights(t, 1, version)
						if err != nil {
							w.Probe.Logprobs[2]--
						}
						return w
					},
				}
			})
		})
	}
}

// hangUp ends the connection without a reply.
func hangUp(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack() // httptest's server allows it
	if err == nil {
		c.Close()
	}
}

// hang returns when the client is gone, which a server notices only after it read the body.
func hang(q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body) // the client may be gone already
	<-q.Context().Done()
}

const tooManyLogprobs = `{"choices": [{"index": 0, "token_ids": [1, 2], "finish_reason": "length", "logprobs": {"content": [
	{"token_id": 1, "logprob": -1}, {"token_id": 2, "logprob": -1}, {"token_id": 3, "logprob": -1}]}}]}`

// Each fault comes twice, then the server answers well: the completion is the one of a healthy server.
func TestFaultsThatPass(t *testing.T) {
	text := func(s string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
	}
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request){
		"500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error": {"message": "EngineDeadError"}}`, http.StatusInternalServerError)
		},
		"503":              func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusServiceUnavailable) },
		"garbage":          text("<html>it works!</html>"),
		"half a JSON":      text(`{"choices": [{"token_ids": [1, 2`),
		"no choices":       text(`{"choices": []}`),
		"no logprobs":      text(`{"choices": [{"token_ids": [1], "finish_reason": "length"}]}`),
		"another token":    text(`{"choices": [{"token_ids": [1], "finish_reason": "length", "logprobs": {"content": [{"token_id": 2, "logprob": -1}]}}]}`),
		"above zero":       text(`{"choices": [{"token_ids": [1], "finish_reason": "length", "logprobs": {"content": [{"token_id": 1, "logprob": 0.5}]}}]}`),
		"more logprobs":    text(tooManyLogprobs),
		"no tokens":        text(`{"choices": [{"token_ids": [], "finish_reason": "stop", "logprobs": {"content": []}}]}`),
		"aborted":          text(`{"choices": [{"token_ids": [1], "finish_reason": "abort", "logprobs": {"content": [{"token_id": 1, "logprob": -1}]}}]}`),
		"connection reset": func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"choices": [`)
			w.(http.Flusher).Flush() // httptest's writer is one
			hangUp(w)
		},
		"cut short between chunks": func(w http.ResponseWriter, _ *http.Request) { // no length: the end of the stream is missing
			fmt.Fprint(w, tooManyLogprobs[:40])
			w.(http.Flusher).Flush() // httptest's writer is one
			hangUp(w)
		},
		"hang": func(_ http.ResponseWriter, q *http.Request) { hang(q) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			e := connect(t, func(o *Options) { o.AttemptTimeout = 100 * time.Millisecond }, f)
			want, err := e.Generate(t.Context(), request(6, 1, 2, 3))
			require.NoError(t, err)
			f.set(func() {
				first := f.requests
				f.intercept = func(w http.ResponseWriter, q *http.Request, n int) bool {
					if n <= first+2 {
						fault(w, q)
						return true
					}
					return false
				}
			})
			got, err := e.Generate(t.Context(), request(6, 1, 2, 3))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// The same where only /v1/completions is offered.
func TestFaultsOfCompletions(t *testing.T) {
	for name, reply := range map[string]string{
		"garbage":           "<html>it works!</html>",
		"no token ids":      `{"choices": [{"text": "a", "finish_reason": "length"}]}`,
		"more logprobs":     `{"choices": [{"token_ids": [1], "finish_reason": "length", "logprobs": {"tokens": ["token_id:1", "token_id:2"], "token_logprobs": [-1, -1]}}]}`,
		"fewer logprobs":    `{"choices": [{"token_ids": [1, 2], "finish_reason": "length", "logprobs": {"tokens": ["token_id:1"], "token_logprobs": [-1]}}]}`,
		"another token":     `{"choices": [{"token_ids": [1], "finish_reason": "length", "logprobs": {"tokens": ["token_id:2"], "token_logprobs": [-1]}}]}`,
		"tokens as strings": `{"choices": [{"token_ids": [1], "finish_reason": "length", "logprobs": {"tokens": ["a"], "token_logprobs": [-1]}}]}`,
		"more tokens":       `{"choices": [{"token_ids": [1, 2, 3, 4, 5, 6, 7], "finish_reason": "length", "logprobs": {"tokens": ["token_id:1", "token_id:2", "token_id:3", "token_id:4", "token_id:5", "token_id:6", "token_id:7"], "token_logprobs": [-1, -1, -1, -1, -1, -1, -1]}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.routes, f.noVersion = allRoutes[1:], true
			e := connect(t, nil, f)
			f.set(func() {
				first := f.requests
				f.intercept = func(w http.ResponseWriter, _ *http.Request, n int) bool {
					if n <= first+2 {
						fmt.Fprint(w, reply)
					}
					return n <= first+2
				}
			})
			got, err := e.Generate(t.Context(), request(6, 1, 2, 3))
			require.NoError(t, err)
			require.Equal(t, wantTokens(1, request(6, 1, 2, 3)), got.TokenIDs)
		})
	}
}

func TestFaultsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		body     string
		attempts int
		want     string
	}{
		"bad request": {400, `{"error": {"message": "token id 99 is out of vocabulary"}}`, 1, "400: token id 99 is out of vocabulary"},
		"no model":    {404, `{"detail": "no such model"}`, 1, "404: no such model"},
		"500 forever": {500, "boom", 4, "4 attempts failed; the last:"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			e := connect(t, func(o *Options) { o.Attempts = 4 }, f)
			var first int
			f.set(func() {
				first = f.requests
				f.intercept = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
					http.Error(w, c.body, c.status)
					return true
				}
			})
			_, err := e.Generate(t.Context(), request(6, 1, 2, 3))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "vllm: request r: ")
			require.ErrorContains(t, err, f.URL)
			require.NotContains(t, err.Error(), "\n")
			f.set(func() { require.Equal(t, c.attempts, f.requests-first) })
		})
	}
}

func TestRetryAfter(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	f.set(func() {
		first := f.requests
		f.intercept = func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == first+1 {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "busy", http.StatusTooManyRequests)
			}
			return n == first+1
		}
	})
	start := time.Now()
	_, err := e.Generate(t.Context(), request(2, 1, 2, 3))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), time.Second)

	// a wait beyond the deadline is not begun
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Retry-After", "100")
			http.Error(w, "busy", http.StatusTooManyRequests)
			return true
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	start = time.Now()
	_, err = e.Generate(ctx, request(2, 1, 2, 3))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "429: busy")
	require.Less(t, time.Since(start), 5*time.Second)
}

// A request that hangs ends with its own deadline, and its place is free.
func TestHangEndsWithTheDeadline(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	f.set(func() {
		f.intercept = func(_ http.ResponseWriter, q *http.Request, _ int) bool {
			hang(q)
			return true
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := e.Generate(ctx, request(2, 1, 2, 3))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, e.fleet.replicas[0].standing.load)
}

// A server is lost where its connection failed: what fails on this side, and a deadline, say nothing of it.
func TestLost(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, err := range []error{refused, &url.Error{Op: "Post", Err: refused}, &url.Error{Op: "Post", Err: io.EOF}, &url.Error{Op: "Get", Err: io.ErrUnexpectedEOF}} {
		require.True(t, lost(fmt.Errorf("load: %w", err)), err)
	}
	for _, err := range []error{
		nil, &os.PathError{Op: "write", Err: syscall.ENOSPC}, syscall.EMFILE, io.ErrUnexpectedEOF, io.EOF, errReply, &statusError{Status: 500},
		&url.Error{Op: "Post", Err: context.DeadlineExceeded},
	} {
		require.False(t, lost(err), err)
	}
}

// A request whose time is over while an attempt hangs tells what the attempts before it were answered.
func TestADeadlineKeepsTheLastFailure(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	f.set(func() {
		first := f.requests
		f.intercept = func(w http.ResponseWriter, q *http.Request, n int) bool {
			if n > first+2 {
				hang(q)
			} else {
				http.Error(w, `{"error": {"message": "CUDA out of memory"}}`, http.StatusInternalServerError)
			}
			return true
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := e.Generate(ctx, request(2, 1, 2, 3))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "500: CUDA out of memory")
}

// A request near the end of the context asks for the tokens that fit, and for no more at the least than at the most, which vLLM would refuse.
func TestMinTokensFitTheContext(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	q := request(20, make([]int32, fakeContext-3)...)
	q.Sampling.MinTokens = 10
	require.NoError(t, e.fleet.check(&q))
	require.Equal(t, 3, q.Sampling.MaxTokens)
	require.Equal(t, 3, q.Sampling.MinTokens)

	q = request(20, 1, 2)
	q.Sampling.MinTokens = 10
	require.NoError(t, e.fleet.check(&q))
	require.Equal(t, 10, q.Sampling.MinTokens)
}

// A model may be served under any name, that of one of OpenAI's too.
func TestAServedNameIsFree(t *testing.T) {
	f := newFake(t)
	f.routes, f.name = allRoutes[1:2], "gpt-4o"
	var asked []any
	f.intercept = func(_ http.ResponseWriter, q *http.Request, _ int) bool {
		data, err := io.ReadAll(q.Body)
		assert.NoError(t, err)
		q.Body = io.NopCloser(bytes.NewReader(data))
		var body map[string]any
		assert.NoError(t, json.Unmarshal(data, &body))
		asked = append(asked, body["model"])
		return false
	}
	e := connect(t, nil, f)
	got, err := e.Generate(t.Context(), request(6, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, wantTokens(1, request(6, 1, 2, 3)), got.TokenIDs)
	for _, name := range asked {
		require.Equal(t, "gpt-4o", name)
	}
}

// A replica that dies while it works is replaced: its requests go on elsewhere and the others use what is left.
func TestAnotherReplicaTakesOver(t *testing.T) {
	a, b := newFake(t), newFake(t)
	e := connect(t, nil, a, b)
	want, err := e.Generate(t.Context(), request(40, 1, 2, 3))
	require.NoError(t, err)
	started := make(chan struct{}, 16)
	a.set(func() {
		a.intercept = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			started <- struct{}{}
			time.Sleep(20 * time.Millisecond)
			hangUp(w)
			return true
		}
		a.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			q := request(40, 1, 2, 3)
			q.Session = ""
			got, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	<-started
	all.Wait()
	require.Equal(t, "down serving", e.states())
	a.set(func() { a.intercept, a.control = nil, nil })
	within(t, "it comes back", func() bool { return e.states() == "serving serving" })
}

// A server that stops answering without closing its connections is down after some looks, and its requests go elsewhere.
func TestSilentReplica(t *testing.T) {
	a, b := newFake(t), newFake(t)
	e := connect(t, func(o *Options) { o.HealthTimeout = 500 * time.Millisecond }, a, b)
	a.set(func() {
		a.intercept = func(_ http.ResponseWriter, q *http.Request, _ int) bool {
			hang(q)
			return true
		}
		a.control = func(_ http.ResponseWriter, q *http.Request) bool {
			hang(q)
			return true
		}
	})
	q := request(6, 1, 2, 3)
	c, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, wantTokens(1, q), c.TokenIDs)
	require.Equal(t, "down serving", e.states())
}

func TestNothingServes(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.Patience = 50 * time.Millisecond }, f)
	f.set(func() {
		f.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	within(t, "it is noticed", func() bool { return e.states() == "down" })
	_, err := e.Generate(t.Context(), request(2, 1, 2, 3))
	require.ErrorContains(t, err, "no replica serves: "+f.URL+" is down")
}

// A server that ended for good while it was loaded is one that does not come back, and is not waited for.
func TestAServerEndsForGoodWhileItIsLoaded(t *testing.T) {
	f := newFake(t)
	var gone error
	e := connect(t, func(o *Options) {
		o.Patience = time.Hour
		o.Gone = func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			return gone
		}
	}, f)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 1)))
	var ended atomic.Bool
	f.set(func() {
		f.control = func(w http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path == "/update_weight_version" {
				ended.Store(true)
			}
			if ended.Load() {
				hangUp(w)
			}
			return ended.Load()
		}
	})
	f.restart() // it is loaded again
	within(t, "it ends", ended.Load)
	f.set(func() { gone = errors.New("it was started again 3 times; its log ends: CUDA out of memory") })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := e.Generate(ctx, request(4, 1, 2, 3))
	require.ErrorContains(t, err, "no replica serves: it was started again 3 times; its log ends: CUDA out of memory")
}

// The places are of all servers together: while one is away, another has those of both, and no more.
func TestPlacesAreOfAllServers(t *testing.T) {
	a, b := newFake(t), newFake(t)
	e := connect(t, func(o *Options) { o.InFlight = 2 }, a, b)
	b.set(func() {
		b.control = func(w http.ResponseWriter, _ *http.Request) bool {
			hangUp(w)
			return true
		}
	})
	within(t, "it is missed", func() bool { return e.states() == "serving down" })
	a.set(func() { a.pause() })
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := e.Generate(ctx, request(4, 1, 2, 3))
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	running := func() int { return e.Load()[0].Running }
	within(t, "the places are taken", func() bool { return running() == 4 })
	time.Sleep(30 * time.Millisecond)
	require.Equal(t, 4, running())
	cancel()
	all.Wait()
}

// The load of a single server counts the requests that wait for a place, and those of several, any of which may take one, are nobody's.
func TestLoadCountsWhatWaits(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			fakes := make([]*fake, n)
			for i := range fakes {
				fakes[i] = newFake(t)
			}
			e := connect(t, func(o *Options) { o.InFlight = 2 }, fakes...)
			for _, f := range fakes {
				f.set(func() { f.pause() })
			}
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					q := request(4, 1, 2, 3)
					q.Session = fmt.Sprint(i)
					_, err := e.Generate(ctx, q)
					assert.ErrorIs(t, err, context.Canceled)
				})
			}
			waiting := func() int { return int(e.router.waiting.Load()) }
			within(t, "the others wait", func() bool {
				running := 0
				for _, load := range e.Load() {
					running += load.Running
				}
				return running == 2*n && waiting() == 8-2*n
			})
			for _, load := range e.Load() {
				require.Equal(t, map[int]int{1: 6, 2: 0}[n], load.Waiting)
			}
			cancel()
			all.Wait()
			require.Zero(t, waiting())
			for _, load := range e.Load() {
				require.Zero(t, load.Waiting)
			}
		})
	}
}

func TestAffinityAndLoad(t *testing.T) {
	a, b, c := newFake(t), newFake(t), newFake(t)
	e := connect(t, nil, a, b, c)
	homes := map[string]*replica{}
	for i := range 9 { // least loaded: every replica gets three
		name := fmt.Sprint("s", i)
		homes[name] = e.fleet.choose(name, nil)
	}
	for _, r := range e.fleet.replicas {
		require.Equal(t, 3, r.standing.load)
	}
	for name, home := range homes { // affinity before load
		require.Same(t, home, e.fleet.choose(name, nil))
		e.fleet.release(home)
	}
	e.fleet.release(e.fleet.replicas[2])
	require.Same(t, e.fleet.replicas[2], e.fleet.choose("", nil))
	other := e.fleet.choose("s0", homes["s0"]) // after a failure elsewhere, and the session moves
	require.NotSame(t, homes["s0"], other)
	require.Same(t, other, e.fleet.choose("s0", nil))
	homes["s1"].standing.set(down, errors.New("test"))
	require.NotSame(t, homes["s1"], e.fleet.choose("s1", nil))
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions()
		r := &replica{}
		for i := range 5 * mostSessions {
			s.set(fmt.Sprint(i), r)
		}
		require.LessOrEqual(t, len(s.young)+len(s.old), 2*mostSessions)
		require.Same(t, r, s.of(fmt.Sprint(5*mostSessions-1)))
		require.Nil(t, s.of("0"))
		s.set("lives", r)
		for range 3 { // a session that is used stays, the others go with time
			time.Sleep(sessionAge + time.Second)
			s.set("lives", r)
		}
		require.Same(t, r, s.of("lives"))
		require.Len(t, s.young, 1)
		require.Len(t, s.old, 1)
	})
}

// Logprobs of the model alone are wrong wherever something else is sampled.
func TestRawLogprobsAreRefused(t *testing.T) {
	f := newFake(t)
	f.raw = true
	e := connect(t, nil, f)
	require.False(t, e.Servers()[0].Processed)
	require.Contains(t, e.Summary(), "raw logprobs")
	for _, s := range []engines.Sampling{{Temperature: 0.5, TopP: 1}, {Temperature: 1, TopP: 0.9}, {Temperature: 1, TopP: 1, TopK: 3}, {Temperature: 1, TopP: 1, MinP: 0.1}} {
		q := request(4, 1, 2)
		s.MaxTokens = 4
		q.Sampling = s
		_, err := e.Generate(t.Context(), q)
		require.ErrorContains(t, err, "--logprobs-mode processed_logprobs")
	}
	for _, temperature := range []float64{0, 1} {
		q := request(4, 1, 2)
		q.Sampling.Temperature = temperature
		_, err := e.Generate(t.Context(), q)
		require.NoError(t, err)
	}
}

func TestLowTemperatureIsRefused(t *testing.T) {
	e := connect(t, nil, newFake(t))
	q := request(4, 1, 2)
	q.Sampling.Temperature = 0.001
	_, err := e.Generate(t.Context(), q)
	require.ErrorContains(t, err, "use 0 or at least 0.01")
}

// Every sampling parameter is sent, whatever its value, by both routes.
func TestEveryParameterIsSent(t *testing.T) {
	for _, native := range []bool{true, false} {
		t.Run(fmt.Sprint("native ", native), func(t *testing.T) { everyParameterIsSent(t, native) })
	}
}

func everyParameterIsSent(t *testing.T, native bool) {
	var body map[string]any
	f := newFake(t)
	e := connect(t, nil, f)
	info := e.fleet.replicas[0].standing.info()
	info.Native = native
	e.fleet.replicas[0].standing.setInfo(info)
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, q *http.Request, _ int) bool {
			require.NoError(t, jsonBody(q, &body))
			http.Error(w, "seen", http.StatusBadRequest)
			return true
		}
	})
	q := request(5, 1, 2, 3)
	q.Seed = 1<<63 + 9
	q.Sampling.StopIDs, q.Sampling.Stop = []int32{7}, []string{"x"}
	_, err := e.Generate(t.Context(), q)
	require.ErrorContains(t, err, "400: seen")
	sampling := body
	if native {
		sampling = body["sampling_params"].(map[string]any)
		require.Equal(t, []any{1.0, 2.0, 3.0}, body["token_ids"])
	} else {
		require.Equal(t, []any{1.0, 2.0, 3.0}, body["prompt"])
		require.Equal(t, true, body["return_token_ids"])
	}
	for key, want := range map[string]any{
		"max_tokens": 5.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "seed": 9.0, "n": 1.0, "logprobs": 0.0, "ignore_eos": true,
		"stop_token_ids": []any{7.0}, "stop": []any{"x"}, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
	} {
		require.Equal(t, want, sampling[key], key)
	}
}

// The line of a server names every way that it may take weights by, with the backend that it must have been started with.
func TestSummaryNamesTheWaysOfUpdates(t *testing.T) {
	for want, s := range map[string]Server{
		"none":                     {Reload: true, LoRA: true, Steps: true, Transfer: true},
		"disk":                     {Control: true, Reload: true},
		"disk nccl (backend nccl)": {Control: true, Reload: true, Steps: true},
		"disk lora transfer gloo ipc (backend agentfly) nccl (backend nccl)": {Control: true, Reload: true, LoRA: true, Steps: true, Transfer: true},
	} {
		require.Contains(t, s.String(), "weight updates: "+want+", cannot sleep")
	}
}

func TestOptions(t *testing.T) {
	_, err := New(t.Context(), Options{})
	require.EqualError(t, err, "vllm: no url is given; name at least one server, such as http://127.0.0.1:8000")
	_, err = New(t.Context(), Options{URLs: []string{"localhost:8000"}})
	require.ErrorContains(t, err, "it must begin with http:// or https://")
	_, err = New(t.Context(), Options{URLs: []string{"http://127.0.0.1:1"}})
	require.EqualError(t, err, "vllm: http://127.0.0.1:1: nobody answers (dial tcp 127.0.0.1:1: connect: connection refused); start the server")
	page := "<!DOCTYPE HTML>\n<html><title>It works</title></html>"
	for status, want := range map[int]string{
		http.StatusOK:         "/v1/models: unusable reply: a web page; this is not a vLLM server",
		http.StatusNotFound:   "/v1/models: 404: a web page; this is not a vLLM server",
		http.StatusBadGateway: "models: 502: a web page",
	} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, page)
		}))
		_, err = New(t.Context(), Options{URLs: []string{web.URL}})
		require.EqualError(t, err, "vllm: "+web.URL+": "+want)
		web.Close()
	}
	f := newFake(t)
	_, err = New(t.Context(), Options{URLs: []string{f.URL}, Model: "another"})
	require.ErrorContains(t, err, `the server has no model "another"`)
	e := connect(t, func(o *Options) { o.URLs = []string{f.URL + "/v1/"} }, f)
	require.Equal(t, f.URL, e.fleet.replicas[0].url)
	require.True(t, strings.HasPrefix(e.Summary(), f.URL+": vLLM 0.0-fake, model policy, context 128, /inference/v1/generate, logprobs of what is sampled and of the 20 likeliest tokens, versions per token, weight updates: disk lora transfer gloo ipc (backend agentfly) nccl (backend nccl), can sleep"))
}

// A task with two hundred trajectories waits before one with a single one: each asks again as soon as it was served, and the
// single one is served once in a round.
func TestNoTaskStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &replica{standing: newStanding()}
		r.standing.set(serving, nil)
		life := newLife()
		defer life.close()
		e := &router{
			fleet: &fleet{replicas: []*replica{r}, sessions: newSessions()}, life: life, places: make(chan struct{}, 3), options: Options{Attempts: 1},
		}
		served := make(chan string)
		ask := func(session string) {
			err := e.attempts(t.Context(), session, func(context.Context, *replica) error {
				served <- session
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		const many, rounds = 200, 5
		for i := range many {
			go ask(fmt.Sprint("big/", i))
		}
		synctest.Wait()
		go ask("small/0")
		synctest.Wait()
		count := map[string]int{}
		for range rounds * (many + 1) {
			session := <-served
			count[session]++
			synctest.Wait() // the place is given on
			go ask(session)
			synctest.Wait() // and who was served waits behind the others
		}
		for session, n := range count {
			require.InDelta(t, rounds, n, 1, session)
		}
		require.Len(t, count, many+1)
		for range many + 1 { // let them all end
			<-served
		}
	})
}

// The route without versions: one look at the server's serves all replies that ended before it began, and one that fails is
// repeated without the completion.
func TestLooksAreShared(t *testing.T) {
	f := newFake(t)
	f.routes = allRoutes[1:]
	e := connect(t, func(o *Options) { o.HealthEvery = time.Hour }, f)
	const most = 64
	var looks, asking atomic.Int32
	f.set(func() {
		f.control = func(_ http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path == "/weight_info" && looks.Add(1) == 1 {
				within(t, "the others wait", func() bool { return asking.Load() == most })
			}
			return false
		}
	})
	var all sync.WaitGroup
	for range most {
		all.Go(func() {
			asking.Add(1)
			got, err := e.fleet.replicas[0].looks.now(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, "default", got)
		})
	}
	all.Wait()
	require.Less(t, looks.Load(), int32(most/4))

	f.set(func() { f.version = "other-1@1" }) // a look that began before a reply ended says nothing of it
	got, err := e.fleet.replicas[0].looks.now(t.Context())
	require.NoError(t, err)
	require.Equal(t, "other-1@1", got)
}

func TestALookThatFailsIsRepeatedAlone(t *testing.T) {
	f := newFake(t)
	f.routes = allRoutes[1:]
	e := connect(t, func(o *Options) { o.HealthEvery = time.Hour }, f)
	var looks, fail atomic.Int32
	f.set(func() {
		f.control = func(w http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path != "/weight_info" || looks.Add(1) > fail.Load() {
				return false
			}
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return true
		}
	})
	asked := func() (n int) { f.set(func() { n = f.requests }); return n }
	before := asked()
	fail.Store(2)
	_, err := e.Generate(t.Context(), request(2, 1, 2))
	require.NoError(t, err)
	require.Equal(t, before+1, asked(), "the completion is not asked for again")
	require.Equal(t, int32(3), looks.Load())

	_, err = e.Logprobs(t.Context(), []int32{1, 2, 3})
	require.NoError(t, err)
	looks.Store(0)
	fail.Store(1000)
	before = asked()
	_, err = e.Generate(t.Context(), request(2, 1, 2))
	require.ErrorContains(t, err, "weight version")
	require.Equal(t, int32(3*(asked()-before)), looks.Load())
}
