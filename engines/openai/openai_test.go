package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

func encode(text string) []int32 {
	var out []int32
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out
}

// endpoint answers the n-th request.
func endpoint(t *testing.T, answer func(w http.ResponseWriter, n int, body map[string]any)) *Engine {
	before := goleak.IgnoreCurrent()
	var mu sync.Mutex
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil || q.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, q)
			return
		}
		mu.Lock()
		n++
		now := n
		mu.Unlock()
		answer(w, now, body)
	}))
	transport := &http.Transport{}
	e, err := New(Options{URL: s.URL + "/v1", Model: "hosted", Encode: encode, Backoff: time.Millisecond, Transport: transport})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		transport.CloseIdleConnections()
		s.Close()
		goleak.VerifyNone(t, before)
	})
	return e
}

// listener answers each request with 4, and keeps what was sent last.
func listener(t *testing.T) (e *Engine, sent *map[string]any) {
	sent = new(map[string]any)
	return endpoint(t, func(w http.ResponseWriter, _ int, body map[string]any) {
		*sent = body
		say(w, "4", "stop")
	}), sent
}

func say(w http.ResponseWriter, text, reason string) {
	content, _ := json.Marshal(text) // a string always marshals
	fmt.Fprintf(w, `{"choices": [{"index": 0, "message": {"role": "assistant", "content": %s}, "finish_reason": %q}]}`, content, reason)
}

func request0() engines.Request {
	return engines.Request{
		ID: "r", Prompt: []int32{1}, Messages: []trajectory.Message{trajectory.Text("system", "Be brief."), trajectory.Text("user", "2+2?")}, Seed: 7,
		Sampling: engines.Sampling{MaxTokens: 20, TopP: 1, Stop: []string{"</answer>", "</call>"}},
	}
}

// A reasoning model samples at temperature 1 and top_p 1, and takes neither parameter. Another setting is refused, not left out.
func TestReasoningModels(t *testing.T) {
	for _, model := range []string{"o1", "o3-mini", "o4-mini", "gpt-5-mini", "gpt-6-sol", "gpt-6-astra"} {
		var sent []map[string]any
		e := endpoint(t, func(w http.ResponseWriter, _ int, body map[string]any) {
			sent = append(sent, body)
			say(w, "4", "stop")
		})
		e.options.Model = model
		q := request0()
		q.Sampling.Temperature = 1
		_, err := e.Generate(t.Context(), q)
		require.NoError(t, err, model)
		require.Len(t, sent, 1)
		require.NotContains(t, sent[0], "temperature", model)
		require.NotContains(t, sent[0], "top_p", model)
		for _, s := range []engines.Sampling{{MaxTokens: 1, TopP: 1}, {MaxTokens: 1, TopP: 1, Temperature: 0.7}, {MaxTokens: 1, TopP: 0.9, Temperature: 1}} {
			q.Sampling = s
			_, err = e.Generate(t.Context(), q)
			require.EqualError(t, err, fmt.Sprintf("openai: request r: the model %s samples at temperature 1 and top_p 1 only; the request has %v and %v", model, s.Temperature, s.TopP))
		}
		require.Len(t, sent, 1)
	}
}

func TestGenerate(t *testing.T) {
	var sent map[string]any
	e := endpoint(t, func(w http.ResponseWriter, _ int, body map[string]any) {
		sent = body
		say(w, "<answer>4</answer> and <call>x</call>", "stop")
	})
	c, err := e.Generate(t.Context(), request0())
	require.NoError(t, err)
	require.Equal(t, encode("<answer>4</answer>"), c.TokenIDs, "cut after the stop string that ends first")
	require.Equal(t, trajectory.FinishStop, c.FinishReason)
	require.Len(t, c.Logprobs, len(c.TokenIDs))
	require.Len(t, c.Versions, len(c.TokenIDs))
	require.Equal(t, "hosted", sent["model"])
	require.Equal(t, 7.0, sent["seed"])
	require.Less(t, sent["temperature"], 1e-30, "greedy is sent, not left to the endpoint's default")
	require.Contains(t, sent, "temperature")
	require.Equal(t, []any{map[string]any{"role": "system", "content": "Be brief."}, map[string]any{"role": "user", "content": "2+2?"}}, sent["messages"])
	require.False(t, e.Capabilities().TokenIDs)
	require.ErrorContains(t, e.Update(t.Context(), engines.Weights{}), "cannot be changed")
}

// Messages keep their roles, which the recorded tokens are rendered from too.
func TestRoles(t *testing.T) {
	e, sent := listener(t)
	q := request0()
	result := trajectory.Text("tool", "4")
	result.Name = "calculator"
	q.Messages = append(q.Messages, trajectory.Text("assistant", "<tool_call>{}</tool_call>"), result)
	_, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, []any{
		map[string]any{"role": "system", "content": "Be brief."},
		map[string]any{"role": "user", "content": "2+2?"},
		map[string]any{"role": "assistant", "content": "<tool_call>{}</tool_call>"},
		map[string]any{"role": "tool", "name": "calculator", "content": "4"},
	}, (*sent)["messages"])
}

// Calls that a prompt shows stand with what answers them: an endpoint refuses an answer whose call it does not find.
func TestCallsOfPrompts(t *testing.T) {
	e, sent := listener(t)
	q := request0()
	result := trajectory.Text("tool", "4")
	result.ToolCallID = "c1"
	q.Messages = []trajectory.Message{
		{Role: "assistant", ToolCalls: []trajectory.ToolCall{{ID: "c1", Name: "calculator", Arguments: json.RawMessage(`{"expression":"2+2"}`)}}}, result,
	}
	_, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	call := map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "calculator", "arguments": `{"expression":"2+2"}`}}
	require.Equal(t, []any{
		map[string]any{"role": "assistant", "tool_calls": []any{call}},
		map[string]any{"role": "tool", "tool_call_id": "c1", "content": "4"},
	}, (*sent)["messages"])
}

// What a content filter cut is not what the model would have said, and no completion that it ended.
func TestContentFilter(t *testing.T) {
	e := endpoint(t, func(w http.ResponseWriter, _ int, _ map[string]any) { say(w, "four", "content_filter") })
	_, err := e.Generate(t.Context(), request0())
	require.EqualError(t, err, "openai: request r: the endpoint's content filter ended the completion, so it is not what the model would have said")
}

func TestLength(t *testing.T) {
	e := endpoint(t, func(w http.ResponseWriter, _ int, _ map[string]any) { say(w, "four is", "length") })
	c, err := e.Generate(t.Context(), request0())
	require.NoError(t, err)
	require.Equal(t, trajectory.FinishLength, c.FinishReason)
}

// A reasoning model may think up to the limit before it writes anything. That is a completion that was cut, and no fault of the endpoint.
func TestNothingButThoughts(t *testing.T) {
	e := endpoint(t, func(w http.ResponseWriter, _ int, _ map[string]any) { say(w, "", "length") })
	c, err := e.Generate(t.Context(), request0())
	require.NoError(t, err)
	require.Empty(t, c.TokenIDs)
	require.Equal(t, trajectory.FinishLength, c.FinishReason)
}

func TestFaults(t *testing.T) {
	e := endpoint(t, func(w http.ResponseWriter, n int, _ map[string]any) {
		switch n {
		case 1:
			http.Error(w, `{"error": {"message": "busy"}}`, http.StatusTooManyRequests)
		case 2:
			http.Error(w, "down", http.StatusBadGateway)
		case 3:
			fmt.Fprint(w, "not JSON")
		default:
			say(w, "4", "stop")
		}
	})
	c, err := e.Generate(t.Context(), request0())
	require.NoError(t, err)
	require.Equal(t, encode("4"), c.TokenIDs)

	e = endpoint(t, func(w http.ResponseWriter, _ int, _ map[string]any) {
		http.Error(w, `{"error": {"message": "no such key"}}`, http.StatusUnauthorized)
	})
	_, err = e.Generate(t.Context(), request0())
	require.ErrorContains(t, err, "openai: request r: after 1 attempts:")
	require.ErrorContains(t, err, "no such key")
}

// An endpoint that says when it wants to be asked again is left alone until then; the pauses are recorded, not waited for.
func TestPauses(t *testing.T) {
	e := endpoint(t, func(w http.ResponseWriter, n int, _ map[string]any) {
		if after := map[int]string{1: "7", 3: "86400"}[n]; after != "" {
			w.Header().Set("Retry-After", after)
		}
		if n < 5 {
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		}
		say(w, "4", "stop")
	})
	var pauses []time.Duration
	e.pause = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
	_, err := e.Generate(t.Context(), request0())
	require.NoError(t, err)
	require.Equal(t, []time.Duration{7 * time.Second, 2 * time.Millisecond, 5 * time.Minute, 8 * time.Millisecond}, pauses)
}

func TestRefuses(t *testing.T) {
	e := endpoint(t, func(w http.ResponseWriter, _ int, _ map[string]any) { say(w, "", "stop") })
	for want, spoil := range map[string]func(q *engines.Request){
		"the request has no messages":   func(q *engines.Request) { q.Messages = nil },
		"top_k and min_p":               func(q *engines.Request) { q.Sampling.TopK = 3 },
		"max_tokens is 0":               func(q *engines.Request) { q.Sampling.MaxTokens = 0 },
		"the endpoint returned no text": func(*engines.Request) {},
		"only text is supported": func(q *engines.Request) {
			q.Messages = []trajectory.Message{{Role: "user", Content: []trajectory.Part{{Type: "image"}}}}
		},
	} {
		q := request0()
		spoil(&q)
		_, err := e.Generate(t.Context(), q)
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Generate(ctx, request0())
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, e.Close())
	_, err = e.Generate(t.Context(), request0())
	require.ErrorIs(t, err, engines.ErrClosed)
	for _, o := range []Options{{URL: "x", Model: "m", Encode: encode}, {URL: "http://x", Encode: encode}, {URL: "http://x", Model: "m"}} {
		_, err := New(o)
		require.Error(t, err)
	}
}
