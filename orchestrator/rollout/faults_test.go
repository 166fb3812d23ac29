package rollout_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// faults are what a server does to the request of a task that names it: to the first of each prompt ("once: …") or to all.
var faults = map[string]func(w http.ResponseWriter, q *http.Request){
	"reset": func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
	"500": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "EngineDeadError", http.StatusInternalServerError)
	},
	"429": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusTooManyRequests)
	},
	"garbage": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>it works!</html>") },
	"cut short": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"choices": [`)
		w.(http.Flusher).Flush() // httptest's writer is one
		hangUp(w)
	},
	"more logprobs": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"choices": [{"token_ids": [65], "finish_reason": "length", "logprobs": {"content": [{"token_id": 65, "logprob": -1}, {"token_id": 65, "logprob": -1}]}}]}`)
	},
	"hang": func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil { // httptest's server allows it
		c.Close()
	}
}

// faultyServer answers as vLLM does: "<answer>5</answer>", where no fault comes first.
func faultyServer(t *testing.T) *httptest.Server {
	var mu sync.Mutex
	seen := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/v1/models":
			fmt.Fprint(w, `{"data": [{"id": "policy", "max_model_len": 4096}]}`)
		case "/version":
			fmt.Fprint(w, `{"version": "0.0-faulty"}`)
		case "/openapi.json":
			fmt.Fprint(w, `{"paths": {"/inference/v1/generate": {}}}`)
		case "/health":
		case "/inference/v1/generate":
			var in struct {
				IDs    []int32 `json:"token_ids"`
				Params struct {
					Seed  int64 `json:"seed"`
					Score *int  `json:"prompt_logprobs"`
				} `json:"sampling_params"`
			}
			if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			text := rollouttest.Letters{}.Decode(in.IDs, false)
			for name, fault := range faults {
				key := fmt.Sprint(name, in.Params.Seed)
				mu.Lock()
				first := !seen[key]
				mu.Unlock()
				if strings.Contains(text, "always: "+name+"<") || first && strings.Contains(text, "once: "+name+"<") {
					mu.Lock()
					seen[key] = true
					mu.Unlock()
					fault(w, q)
					return
				}
			}
			answerFive(w, in.IDs, in.Params.Score != nil)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func answerFive(w http.ResponseWriter, prompt []int32, score bool) {
	ids := append(rollouttest.Letters{}.Encode("<answer>5</answer>"), rollouttest.End)
	var content, scores []any
	for _, id := range ids {
		content = append(content, map[string]any{"token_id": id, "logprob": -0.5})
	}
	if score {
		ids, content = ids[:1], content[:1]
		scores = append(scores, nil)
		for _, id := range prompt[1:] {
			scores = append(scores, map[string]any{fmt.Sprint(id): map[string]any{"logprob": -1.0}})
		}
	}
	if len(prompt) < 20 { // the engine's probe wants one token
		ids, content = ids[:1], content[:1]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may be gone
		"choices":         []any{map[string]any{"token_ids": ids, "finish_reason": "stop", "logprobs": map[string]any{"content": content}}},
		"prompt_logprobs": scores,
	})
}

// Whatever a server does, every trajectory comes back: as if nothing had been where the fault passes, and else failed with the
// reason. The others of its group and of the step are untouched, nothing hangs, and no goroutine is left.
func TestFaultsOfAServer(t *testing.T) {
	want := map[string]string{ // part of the reason
		"reset": "EOF", "500": "500: EngineDeadError", "429": "429: busy", "garbage": "unusable reply", "cut short": "unexpected EOF",
		"more logprobs": "2 logprobs for 1 token ids", "hang": "context deadline exceeded",
	}
	before := goleak.IgnoreCurrent()
	server := faultyServer(t)
	r := rollouttest.New(t, nil)
	engine, err := vllm.New(t.Context(), vllm.Options{
		URLs: []string{server.URL}, Attempts: 4, Backoff: time.Millisecond, AttemptTimeout: 500 * time.Millisecond, HealthEvery: 5 * time.Millisecond,
	})
	require.NoError(t, err)
	r.Engine, r.Timeout, r.MaxTotal = engine, 4*time.Second, 4000
	var tasks []trajectory.Task
	for name := range faults {
		for _, how := range []string{"always: ", "once: "} {
			tasks = append(tasks, rollouttest.Task(how+name, how+name, "5"))
		}
	}
	tasks = append(tasks, rollouttest.Task("fine", "fine", "5"))
	begin := time.Now()
	groups, err := r.Groups(t.Context(), "train", 0, tasks, 3, nil)
	require.NoError(t, err)
	require.Less(t, time.Since(begin), 20*time.Second)
	require.Len(t, groups, len(tasks))
	for _, g := range groups {
		require.Len(t, g.Trajectories, 3)
		name, always := strings.CutPrefix(g.Task.ID, "always: ")
		for _, tr := range g.Trajectories {
			if !always {
				require.Empty(t, tr.Err, g.Task.ID)
				require.Equal(t, 1.0, tr.Reward)
				continue
			}
			require.Equal(t, trajectory.StopError, tr.StopReason, g.Task.ID)
			require.Equal(t, trajectory.OriginEngine, tr.ErrOrigin)
			require.Contains(t, tr.Err, want[name])
			require.Contains(t, tr.Err, server.URL)
			require.NotContains(t, tr.Err, "\n")
		}
	}
	require.NoError(t, engine.Close())
	server.Close()
	goleak.VerifyNone(t, before)
}
