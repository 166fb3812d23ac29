package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// benchReply is what every engine of the benchmark says, and benchDelay how long it takes.
const (
	benchReply = "The sum is computed step by step, and the next line holds what is left of it."
	benchDelay = 20 * time.Millisecond
	benchTurns = 6 // of a conversation
)

// benchTarget is something that a client asks for chat completions; open begins a conversation and returns its key.
type benchTarget struct {
	name, url string
	open      func() (key string, end func())
}

// TestBenchGateway compares what a call costs over the gateway, over LiteLLM's proxy and over a bare pass-through, beside the engine's own time.
func TestBenchGateway(t *testing.T) {
	folder := os.Getenv("AGENTFLY_BENCH_GATEWAY") // SmolLM2's files
	if folder == "" {
		t.Skip("AGENTFLY_BENCH_GATEWAY is not set: make bench-gateway sets it")
	}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(benchDelay)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"policy","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}],"usage":{"prompt_tokens":100,"completion_tokens":17,"total_tokens":117}}`, benchReply)
	}))
	defer engine.Close()
	plain := func() (string, func()) { return "sk-none", func() {} }
	at, err := url.Parse(engine.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 256}
	pass := httptest.NewServer(proxy)
	defer pass.Close()
	targets := []benchTarget{{"the engine itself", engine.URL, plain}, {"bare pass-through (Go's ReverseProxy)", pass.URL, plain}, benchGateway(t, folder, false), benchGateway(t, folder, true)}
	if litellm := os.Getenv("AGENTFLY_LITELLM"); litellm != "" {
		targets = append(targets, benchTarget{"LiteLLM's proxy " + os.Getenv("AGENTFLY_LITELLM_VERSION"), startLiteLLM(t, litellm, engine.URL), plain})
	}
	fmt.Println("| over | p50 of a call, ms | beyond the engine, ms | p99, ms | turns/s, 64 clients |")
	fmt.Println("|---|---|---|---|---|")
	var own float64
	for i, target := range targets {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
		converse(t, client, target) // warm
		var took []time.Duration
		for range 40 {
			took = append(took, converse(t, client, target)...)
		}
		slices.Sort(took)
		p50, p99 := ms(took[len(took)/2]), ms(took[len(took)*99/100])
		if i == 0 {
			own = p50
		}
		var turns atomic.Int64
		var all sync.WaitGroup
		stop := time.Now().Add(5 * time.Second)
		began := time.Now()
		for range 64 {
			all.Go(func() {
				for time.Now().Before(stop) {
					turns.Add(int64(len(converse(t, client, target))))
				}
			})
		}
		all.Wait()
		fmt.Printf("| %s | %.2f | %.2f | %.2f | %.0f |\n", target.name, p50, p50-own, p99, float64(turns.Load())/time.Since(began).Seconds())
		client.CloseIdleConnections()
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// converse has one conversation with a target and returns how long each call took.
func converse(t *testing.T, client *http.Client, target benchTarget) (took []time.Duration) {
	key, end := target.open()
	defer end()
	messages := []map[string]string{{"role": "system", "content": "You compute sums step by step, and you write down each of them."}, {"role": "user", "content": "What is 17 + 23 + 31?"}}
	for range benchTurns {
		body, _ := json.Marshal(map[string]any{"model": "policy", "messages": messages})
		r, _ := http.NewRequest(http.MethodPost, target.url+"/v1/chat/completions", strings.NewReader(string(body)))
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		began := time.Now()
		reply, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return took
		}
		data, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		took = append(took, time.Since(began))
		if err != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(data), "step by step") {
			t.Errorf("%s: %d %s %v", target.name, reply.StatusCode, data, err)
			return took
		}
		messages = append(messages, map[string]string{"role": "assistant", "content": benchReply}, map[string]string{"role": "user", "content": "And 12 more?"})
	}
	return took
}

// benchGateway is a gateway over a scripted engine, with the tokenizer and the template of SmolLM2, and a store as a job has it, or none.
func benchGateway(t *testing.T, folder string, stored bool) benchTarget {
	text, err := policy.LoadText(folder)
	require.NoError(t, err)
	tok := text.Tokenizer
	template, err := jinja.Compile(text.ChatTemplate, jinja.Options{BOSToken: "<|im_start|>", EOSToken: "<|im_end|>"})
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(tok, template, masks.Options{StopIDs: text.StopIDs})
	require.NoError(t, err)
	said := append(tok.Encode(benchReply), renderer.StopIDs()[0])
	engine := scripted.New(scripted.Options{Delay: benchDelay, MaxModelLen: 8192, Decode: func(ids []int32) string { return tok.Decode(ids, true) }, Respond: func(engines.Request) (engines.Completion, error) {
		return engines.Completion{TokenIDs: said}, nil
	}})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	g, err := gateway.New(gateway.Options{
		Engine: engine, Renderer: renderer, Decode: func(ids []int32) string { return tok.Decode(ids, true) }, Model: "policy", MaxTotal: 8192,
		Sampling: engines.Sampling{MaxTokens: 100, Temperature: 1, TopP: 1, StopIDs: renderer.StopIDs()},
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
	})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	name := "agentfly's gateway, in memory"
	var record func(context.Context, *trajectory.Trajectory) error
	var db *store.Store
	if stored {
		name = "agentfly's gateway, every call stored"
		db, err = store.Open(filepath.Join(t.TempDir(), store.File))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		record = db.AddTurn
	}
	var n atomic.Int64
	return benchTarget{name, server.URL, func() (string, func()) {
		tr := &trajectory.Trajectory{ID: fmt.Sprint("train-0-0-", n.Add(1))}
		s, err := g.Open(gateway.SessionOptions{Name: tr.ID, Key: "sk-" + tr.ID, Trajectory: tr, Record: record})
		if err != nil {
			t.Error(err)
			return "", func() {}
		}
		return "sk-" + tr.ID, func() {
			s.Finish()
			if len(tr.Samples) != 1 || len(tr.Turns) != benchTurns {
				t.Errorf("%s: %d samples, %d turns", tr.ID, len(tr.Samples), len(tr.Turns))
			}
			if db != nil {
				if err := db.AddTrajectory(context.Background(), store.Train, trajectory.Task{ID: tr.ID}, tr); err != nil {
					t.Error(err)
				}
			}
		}
	}}
}

// startLiteLLM runs LiteLLM's proxy before the engine, with the workers that it has by default, and returns its address.
func startLiteLLM(t *testing.T, program, engine string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf("model_list:\n  - model_name: policy\n    litellm_params: {model: openai/policy, api_base: %q, api_key: none}\n", engine+"/v1")), 0o600))
	c := exec.Command(program, "--config", config, "--port", fmt.Sprint(port), "--host", "127.0.0.1")
	c.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR", "NO_PROXY=127.0.0.1", "LITELLM_TELEMETRY=False", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	c.Stdout, c.Stderr = log, log
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait(); _ = log.Close() })
	at := fmt.Sprintf("http://127.0.0.1:%d", port)
	require.Eventually(t, func() bool {
		reply, err := http.Get(at + "/health/liveliness")
		if err == nil {
			_ = reply.Body.Close()
		}
		return err == nil && reply.StatusCode == http.StatusOK
	}, 2*time.Minute, 200*time.Millisecond, "LiteLLM's proxy does not answer; its log is %s", log.Name())
	return at
}
