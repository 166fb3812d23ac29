package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
)

const long = `{"token_ids":[1],"sampling_params":{"max_tokens":300,"ignore_eos":true}}`

// slow gives a token every 2 ms, without end.
func slow() scripted.Options {
	return scripted.Options{Respond: scripted.Model(vocabulary), TokenDelay: 2 * time.Millisecond}
}

// background posts and gives the reply later.
func (h *harness) background(path, body string) func() generateReply {
	done := make(chan string, 1)
	go func() {
		resp, err := h.http.Client().Do(h.request(context.Background(), "POST", path, body))
		if err != nil {
			done <- err.Error()
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		done <- string(data)
	}()
	return func() generateReply {
		h.t.Helper()
		var out generateReply
		require.NoError(h.t, json.Unmarshal([]byte(<-done), &out))
		require.Len(h.t, out.Choices, 1)
		return out
	}
}

func (h *harness) until(what string, f func() bool) {
	h.t.Helper()
	require.Eventually(h.t, f, 10*time.Second, time.Millisecond, what)
}

// started waits until n tokens were sampled.
func (h *harness) started(n int64) {
	h.t.Helper()
	h.until("tokens are sampled", func() bool {
		h.server.metrics.mu.Lock()
		defer h.server.metrics.mu.Unlock()
		return h.server.metrics.generated >= n
	})
}

func (h *harness) paused() bool {
	_, body := h.do("GET", "/is_paused", "")
	return body == `{"is_paused":true}`
}

func TestPauseAbort(t *testing.T) {
	h := start(t, slow(), nil)
	running := h.background("/inference/v1/generate", long)
	h.started(3)
	require.Equal(t, `{"status":"paused"}`, h.post("/pause", ""))
	got := running().Choices[0]
	require.Equal(t, "abort", *got.Finish)
	require.GreaterOrEqual(t, len(got.TokenIDs), 3)
	require.Less(t, len(got.TokenIDs), 300)
	waiting := h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":2}}`)
	h.until("it waits", func() bool { return h.server.queue.completions.Load() == 1 })
	require.True(t, h.paused())
	time.Sleep(10 * time.Millisecond)
	require.Len(t, h.engine.Requests(), 1, "nothing enters")
	require.Equal(t, `{"status":"resumed"}`, h.post("/resume", ""))
	require.Len(t, waiting().Choices[0].TokenIDs, 2)
	require.False(t, h.paused())
}

func TestPauseWait(t *testing.T) {
	h := start(t, slow(), nil)
	running := h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":20,"ignore_eos":true}}`)
	h.started(3)
	h.post("/pause?mode=wait", "")
	_, _, left := h.server.gate.state()
	require.Zero(t, left, "what ran has ended")
	require.Len(t, running().Choices[0].TokenIDs, 20)
	require.True(t, h.paused())
	h.post("/resume", "")
}

// fixed is an engine that takes no weights, so that nothing holds it between two steps.
type fixed struct{ *scripted.Engine }

func (fixed) Update(context.Context, engines.Weights) error { return errors.New("fixed") }

// A pause that cannot be made leaves the server as it was: open, or paused by another.
func TestAPauseThatFailsChangesNothing(t *testing.T) {
	h := start(t, slow(), func(o *Options) { o.Engine = fixed{o.Engine.(*scripted.Engine)} })
	keep := func() {
		t.Helper()
		status, text := h.do("POST", "/pause?mode=keep", "")
		require.Equal(t, http.StatusInternalServerError, status)
		require.Contains(t, text, "the engine cannot hold its requests: fixed")
	}
	keep()
	require.False(t, h.paused())
	h.post("/pause?mode=wait", "")
	keep()
	require.True(t, h.paused())
}

// Who waits for a pause learns at once that it ended before its time: by a resume, or with the server.
func TestPauseWaitEndsWithItsPause(t *testing.T) {
	for _, c := range []struct {
		end    func(h *harness)
		status int
		says   string
	}{
		{func(h *harness) { h.post("/resume", "") }, http.StatusConflict, "the server was resumed while this pause waited for what runs"},
		{func(h *harness) {
			h.post("/resume", "")
			h.post("/pause", "") // another one's
		}, http.StatusConflict, "the server was resumed while this pause waited for what runs"},
		{func(h *harness) { h.server.Close() }, http.StatusServiceUnavailable, "the server is shutting down"},
	} {
		free := make(chan struct{})
		h := start(t, scripted.Options{Respond: func(r engines.Request) (engines.Completion, error) {
			<-free
			return says("hi")(r)
		}}, nil)
		running := make(chan struct{})
		go func() {
			defer close(running)
			h.do("POST", "/v1/completions", `{"prompt":"x"}`)
		}()
		h.until("it runs", func() bool { return len(h.engine.Requests()) == 1 })
		type reply struct {
			status int
			text   string
		}
		waited := make(chan reply, 1)
		go func() {
			status, text := h.do("POST", "/pause?mode=wait", "")
			waited <- reply{status, text}
		}()
		h.until("it is paused", h.paused)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.end(h)
		}()
		var got reply
		select {
		case got = <-waited:
		case <-time.After(10 * time.Second):
			t.Error("the pause waits on")
		}
		close(free)
		<-ended
		<-running
		require.Equal(t, c.status, got.status, got.text)
		require.Contains(t, got.text, c.says)
	}
}

// A request that is kept goes on under the new weights and says so.
func TestPauseKeep(t *testing.T) {
	h := start(t, slow(), nil)
	running := h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":40,"ignore_eos":true}}`)
	h.started(3)
	h.post("/pause?mode=keep", "")
	h.post("/pause?mode=keep", "") // again is fine
	require.Equal(t, `{"new_version":"seven","success":true}`, h.post("/update_weight_version", `{"new_version":"seven"}`))
	require.Equal(t, `{"success":true}`, h.post("/reset_prefix_cache", ""))
	h.server.metrics.mu.Lock()
	sampled := h.server.metrics.generated
	h.server.metrics.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	h.server.metrics.mu.Lock()
	require.LessOrEqual(t, h.server.metrics.generated, sampled+1, "it stands still")
	h.server.metrics.mu.Unlock()
	h.post("/resume", "")
	h.post("/resume", "")
	got := running().Choices[0]
	require.Len(t, got.TokenIDs, 40)
	require.Len(t, got.Versions, 2)
	require.Equal(t, span{"default", 0, got.Versions[0].End}, got.Versions[0])
	require.Equal(t, span{"seven", got.Versions[0].End, 40}, got.Versions[1])
	_, info := h.do("GET", "/weight_info", "")
	require.Equal(t, `{"weight_version":"seven"}`, info)
	h.refuses("/pause?mode=never", "", 400, "allowed are abort, wait and keep")
	h.refuses("/update_weight_version", `{}`, 400, "new_version is missing")
	h.refuses("/update_weight_version", `{"new_version":7}`, 400, "new_version")
}

// Without a new version, what was kept is of one version.
func TestPauseKeepAlone(t *testing.T) {
	h := start(t, slow(), nil)
	running := h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"max_tokens":30,"ignore_eos":true}}`)
	h.started(3)
	h.post("/pause?mode=keep", "")
	h.post("/resume", "")
	require.Equal(t, []span{{"default", 0, 30}}, running().Choices[0].Versions)
}

func TestReload(t *testing.T) {
	var paths []string
	bad := errors.New("no such folder")
	h := start(t, slow(), func(o *Options) {
		o.Reload = func(_ context.Context, path string) error {
			paths = append(paths, path)
			if path == "bad" {
				return bad
			}
			return nil
		}
	})
	require.Equal(t, `{"results":[null]}`, h.post("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"good"}}`))
	h.refuses("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"bad"}}`, 500, "no such folder")
	h.post("/pause?mode=keep", "")
	h.refuses("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"bad"}}`, 500, "no such folder")
	h.post("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"good"}}`)
	h.post("/resume", "")
	require.Equal(t, []string{"good", "bad", "bad", "good"}, paths)
	h.refuses("/collective_rpc", `{"method":"execute"}`, 400, "offers reload_weights alone")
	h.refuses("/collective_rpc", `{"method":"reload_weights"}`, 400, "weights_path is missing")
}

// A client that goes away frees its slot at once, streaming or not, running or held at the gate.
func TestDisconnect(t *testing.T) {
	h := start(t, slow(), nil)
	for _, path := range []string{"/inference/v1/generate", "/v1/completions"} {
		for _, stream := range []string{"true", "false"} {
			body := `{"token_ids":[1],"prompt":[1],"max_tokens":300,"ignore_eos":true,"n":3,"stream":` + stream + `,"sampling_params":{"max_tokens":300,"n":3,"ignore_eos":true}}`
			ctx, cancel := context.WithCancel(context.Background())
			var wait sync.WaitGroup
			wait.Go(func() {
				resp, err := h.http.Client().Do(h.request(ctx, "POST", path, body))
				if err == nil {
					_, _ = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
			})
			h.until("it runs", func() bool { _, _, n := h.server.gate.state(); return n == 3 })
			cancel()
			wait.Wait()
			h.until("its slots are free", func() bool { _, _, n := h.server.gate.state(); return n == 0 && h.server.queue.completions.Load() == 0 })
		}
	}
	h.post("/pause", "")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := h.http.Client().Do(h.request(ctx, "POST", "/inference/v1/generate", long))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	h.until("its place is free", func() bool { return h.server.queue.completions.Load() == 0 })
	h.post("/resume", "")
}

// An update of the weights does not wait for a client that is gone, and the engine's errors have their status.
func TestEngineErrors(t *testing.T) {
	boom := errors.New("boom")
	h := start(t, scripted.Options{Respond: func(r engines.Request) (engines.Completion, error) {
		if r.Seed == 3 {
			return engines.Completion{}, boom
		}
		return scripted.Tokens(97, 256), nil
	}}, nil)
	h.refuses("/v1/completions", `{"prompt":"x","n":4,"seed":0}`, 500, "boom")
	h.refuses("/v1/completions", `{"prompt":"x","seed":3,"stream":true}`, 500, "boom")
	require.NoError(t, h.engine.Close())
	h.refuses("/v1/completions", `{"prompt":"x"}`, 503, "the engine is closed")
	h.refuses("/pause?mode=keep", "", 503, "the engine is closed")
	require.False(t, h.paused(), "a pause that failed does not hold")
}

// An error in mid-stream is an event.
func TestStreamError(t *testing.T) {
	o := slow()
	h := start(t, o, nil)
	resp, err := h.http.Client().Do(h.request(context.Background(), "POST", "/inference/v1/generate", strings.Replace(long, `{"token_ids"`, `{"stream":true,"token_ids"`, 1)))
	require.NoError(t, err)
	defer resp.Body.Close()
	h.started(2)
	require.NoError(t, h.engine.Close())
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(data),
		"data: {\"error\":{\"message\":\"the engine is closed\",\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}\n\ndata: [DONE]\n\n"), "%s", data)
}

// Closing aborts what runs, refuses what waits, and turns health off.
func TestClose(t *testing.T) {
	h := start(t, slow(), nil)
	running := h.background("/inference/v1/generate", long)
	h.started(3)
	h.post("/pause?mode=keep", "")
	waiting := make(chan int, 1)
	go func() {
		resp, err := h.http.Client().Do(h.request(context.Background(), "POST", "/inference/v1/generate", long))
		if err != nil {
			waiting <- 0
			return
		}
		resp.Body.Close()
		waiting <- resp.StatusCode
	}()
	h.until("it waits", func() bool { return h.server.queue.completions.Load() == 2 })
	h.server.Close()
	require.Equal(t, "abort", *running().Choices[0].Finish)
	require.Equal(t, http.StatusServiceUnavailable, <-waiting)
	status, _ := h.do("GET", "/health", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NoError(t, h.server.Drain(context.Background()))
}

func TestMetrics(t *testing.T) {
	h := start(t, scripted.Options{Respond: says("abc")}, func(o *Options) {
		o.Stats = func() Stats {
			return Stats{Running: 2, Waiting: 3, CacheUsage: 0.25, PrefixQueries: 100, PrefixHit: 48, Preemptions: 1}
		}
	})
	h.post("/v1/completions", `{"prompt":"xy","n":2}`)
	h.post("/v1/completions", `{"prompt":"xy","max_tokens":1}`)
	_, text := h.do("GET", "/metrics", "")
	for _, line := range []string{
		`vllm:num_requests_running{model_name="m",engine="0"} 2`,
		`vllm:num_requests_waiting{model_name="m",engine="0"} 3`,
		`vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.25`,
		`vllm:prefix_cache_queries_total{model_name="m",engine="0"} 100`,
		`vllm:prefix_cache_hits_total{model_name="m",engine="0"} 48`,
		`vllm:num_preemptions_total{model_name="m",engine="0"} 1`,
		`vllm:prompt_tokens_total{model_name="m",engine="0"} 9`,
		`vllm:generation_tokens_total{model_name="m",engine="0"} 9`,
		`vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 2`,
		`vllm:request_success_total{model_name="m",engine="0",finished_reason="length"} 1`,
		`vllm:request_success_total{model_name="m",engine="0",finished_reason="abort"} 0`,
		`vllm:time_to_first_token_seconds_bucket{model_name="m",engine="0",le="+Inf"} 3`,
		`vllm:inter_token_latency_seconds_count{model_name="m",engine="0"} 6`,
		`vllm:e2e_request_latency_seconds_count{model_name="m",engine="0"} 3`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}

// 64 clients with random aborts: what is not aborted succeeds, and every slot is free at the end.
func TestLoad(t *testing.T) {
	o := slow()
	o.TokenDelay = 200 * time.Microsecond
	h := start(t, o, nil)
	end := time.Now().Add(2 * time.Second)
	load{url: h.http.URL, model: "m", clients: 64, end: end, tokens: 40}.run(t)
	h.until("every slot is free", func() bool { _, _, n := h.server.gate.state(); return n == 0 && h.server.queue.completions.Load() == 0 })
}

// afterwards does something between an engine's update and the server's knowing that it is done.
type afterwards struct {
	engines.Engine
	do func(version int32)
}

func (e afterwards) Update(ctx context.Context, w engines.Weights) error {
	err := e.Engine.Update(ctx, w)
	e.do(w.Version)
	return err
}

// Tokens that are sampled before an update has returned carry the name that a client gave, never the engine's own count: a
// client would take that for weights that it did not give.
func TestTheEnginesCountIsNoNameOfWeights(t *testing.T) {
	var names []string
	var h *harness
	h = start(t, slow(), func(o *Options) {
		o.Reload = func(context.Context, string) error { return nil }
		o.Engine = afterwards{o.Engine, func(version int32) { names = append(names, h.server.weights.label(version)) }}
	})
	h.post("/update_weight_version", `{"new_version":"mine@1"}`)
	h.post("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"good"}}`)
	h.post("/reset_prefix_cache", "")
	require.Equal(t, []string{"mine@1", "mine@1", "mine@1"}, names)
}

// prober is an engine that computes the logprobs of a prompt until it is told to stop.
type prober struct {
	*scripted.Engine
	begun chan struct{}
}

func (p prober) Logprobs(ctx context.Context, _ []int32) ([]float32, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return nil, fmt.Errorf("engine: logprobs: %w", ctx.Err())
}

// There is no part of a prompt's logprobs that a reply could hold: an abort refuses the request, and the client asks again.
func TestAbortOfPromptLogprobsIsAnError(t *testing.T) {
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", `{"prompt":"abc","max_tokens":1,"echo":true,"logprobs":0}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"prompt_logprobs":0}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"prompt_logprobs":0,"stream":true}`},
		{"/inference/v1/generate", `{"token_ids":[1,2],"sampling_params":{"max_tokens":1,"prompt_logprobs":0}}`},
	} {
		for message, abort := range map[string]func(h *harness){
			"aborted: the server was paused; ask again": func(h *harness) { h.post("/pause", "") },
			"the server is shutting down":               func(h *harness) { h.server.Close() },
		} {
			p := prober{begun: make(chan struct{})}
			h := start(t, scripted.Options{Respond: says("x")}, func(o *Options) {
				p.Engine = o.Engine.(*scripted.Engine)
				o.Engine = p
			})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				<-p.begun
				abort(h)
			}()
			h.refuses(c.path, c.body, http.StatusServiceUnavailable, message)
			<-ended
		}
	}
}
