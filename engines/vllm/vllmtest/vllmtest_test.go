package vllmtest_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/engines/vllm/vllmtest"
	"github.com/agentfly/agentfly/trajectory"
)

func start(t *testing.T, o vllmtest.Options) (*vllmtest.Server, string) {
	t.Helper()
	o.Replies, o.First, o.Each, o.Context = []vllmtest.Reply{{TokenIDs: []int32{7, 8}, Text: "one"}, {TokenIDs: []int32{9}, Text: "two"}}, 10, 5, 128
	s, err := vllmtest.New(o)
	require.NoError(t, err)
	leaks := goleak.IgnoreCurrent()
	if o.Faults == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- s.Serve(l) }()
		t.Cleanup(func() {
			require.NoError(t, l.Close())
			require.NoError(t, <-done)
			http.DefaultClient.CloseIdleConnections()
			goleak.VerifyNone(t, leaks)
		})
		return s, "http://" + l.Addr().String()
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections() // one that waits on purpose would be waited for
		h.Close()
		goleak.VerifyNone(t, leaks)
	})
	return s, h.URL
}

func request(n int) engines.Request {
	return engines.Request{ID: fmt.Sprint(n), Prompt: make([]int32, n), Sampling: engines.Sampling{MaxTokens: 4, Temperature: 1, TopP: 1}}
}

func TestAnEngineSamplesFromIt(t *testing.T) {
	s, url := start(t, vllmtest.Options{})
	e, err := vllm.New(t.Context(), vllm.Options{URLs: []string{url}})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.Equal(t, url+`: vLLM 0.0-test, model policy, context 128, /inference/v1/generate, raw logprobs (temperature 1 without truncation only), versions per token, weight updates: none, cannot sleep, has weights "0"`, e.Summary())
	for n, want := range map[int][]int32{10: {7, 8}, 14: {7, 8}, 15: {9}, 99: {9}} {
		c, err := e.Generate(t.Context(), request(n))
		require.NoError(t, err)
		require.Equal(t, want, c.TokenIDs)
		require.Equal(t, slices.Repeat([]int32{0}, len(want)), c.Versions)
		require.Equal(t, trajectory.FinishStop, c.FinishReason)
	}
	require.Equal(t, int64(4), s.Requests())
}

func TestOtherRoutes(t *testing.T) {
	_, url := start(t, vllmtest.Options{})
	post := func(path, body string) string {
		r, err := http.Post(url+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close()
		data, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(data)
	}
	require.Contains(t, post("/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9,10]}`), `"tokens":["token_id:7","token_id:8"]`)
	require.Contains(t, post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`), `"message":{"content":"one","role":"assistant"}`)
	require.Contains(t, post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"},{"role": "assistant","content":"y"}]}`), `"content":"two"`)
	require.Contains(t, post("/v1/completions", `{"prompt":[1]}`), "shorter than the first turn's")
}

// Half of the completions fail, each kind of fault comes, and no request is lost.
func TestFaultsPass(t *testing.T) {
	s, url := start(t, vllmtest.Options{Faults: 0.5, Seed: 3})
	e, err := vllm.New(t.Context(), vllm.Options{URLs: []string{url}, Attempts: 100, Backoff: time.Millisecond, AttemptTimeout: 50 * time.Millisecond, HealthEvery: 5 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			c, err := e.Generate(t.Context(), request(10+i%2*5))
			if err != nil {
				t.Error(err)
			} else if len(c.TokenIDs) != 2-i%2 {
				t.Errorf("%v after a prompt of %d", c.TokenIDs, 10+i%2*5)
			}
		})
	}
	all.Wait()
	require.Greater(t, s.Faults(), int64(10))
	require.GreaterOrEqual(t, s.Requests()-s.Faults(), int64(40))
}
