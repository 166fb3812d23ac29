//go:build torch

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/enginetest"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
)

// startLocal serves a tiny random model in libtorch.
func startLocal(t *testing.T, change func(*Options)) (*harness, *local.Engine) {
	t.Helper()
	c := cgo.ModelConfig{
		VocabSize: vocabulary, HiddenSize: 48, IntermediateSize: 80, NumLayers: 2, NumHeads: 6, NumKVHeads: 2, HeadDim: 8, RMSNormEps: 1e-5,
	}
	for i := range 4 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(1000, -float64(i)/4)))
	}
	m, err := cgo.NewModel(c, "cpu")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.NoError(t, m.Init(1, 0.15))
	e, err := local.New(m, local.Options{MaxModelLen: 600, Decoder: letters{}, BlockSize: 8})
	require.NoError(t, err)
	o := Options{
		Engine: e, Tokenizer: letters{}, Renderer: lines{}, StopIDs: []int32{endOfTurn}, Models: []string{"m"}, Vocab: vocabulary,
		Reload: func(context.Context, string) error { m.Changed(); return nil },
	}
	if change != nil {
		change(&o)
	}
	h := &harness{t: t}
	h.server, err = New(o)
	require.NoError(t, err)
	h.http = httptest.NewServer(h.server)
	t.Cleanup(func() {
		h.server.Close()
		h.http.Close()
		require.NoError(t, e.Close())
	})
	return h, e
}

// What the routes give is what the engine gives, to the bit, whatever runs beside it.
func TestLocalSameBits(t *testing.T) {
	h, e := startLocal(t, nil)
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			prompt := []int32{int32(i), 7, 9}
			want, err := e.Generate(context.Background(), engines.Request{
				ID: "r", Prompt: prompt, Seed: uint64(i), Sampling: engines.Sampling{MaxTokens: 20, Temperature: 0.8, TopP: 0.9, TopK: 50},
			})
			if err != nil {
				t.Error(err)
				return
			}
			var got generateReply
			body := fmt.Sprintf(`{"token_ids":[%d,7,9],"sampling_params":{"seed":%d,"max_tokens":20,"temperature":0.8,"top_p":0.9,"top_k":50,"logprobs":0,"ignore_eos":true}}`, i, i)
			if err := json.Unmarshal([]byte(h.post("/inference/v1/generate", body)), &got); err != nil {
				t.Error(err)
				return
			}
			if c := got.Choices[0]; !slices.Equal(c.TokenIDs, want.TokenIDs) {
				t.Errorf("%d: %v, not %v", i, c.TokenIDs, want.TokenIDs)
				return
			}
			for n, l := range got.Choices[0].Logprobs.Content {
				if float32(l.Logprob) != want.Logprobs[n] {
					t.Errorf("%d: token %d: %v, not %v", i, n, l.Logprob, want.Logprobs[n])
				}
			}
		})
	}
	wait.Wait()
}

// Raw logprobs are those of the prompt that the completion makes; the whole list of alternatives is a distribution.
func TestLocalRawLogprobs(t *testing.T) {
	h, _ := startLocal(t, func(o *Options) { o.RawLogprobs, o.MaxLogprobs = true, vocabulary })
	var got generateReply
	require.NoError(t, json.Unmarshal([]byte(h.post("/inference/v1/generate",
		`{"token_ids":[1,2,3],"sampling_params":{"seed":5,"max_tokens":12,"temperature":0.5,"top_k":4,"logprobs":300,"ignore_eos":true}}`)), &got))
	c := got.Choices[0]
	ids, err := json.Marshal(append([]int32{1, 2, 3}, c.TokenIDs...))
	require.NoError(t, err)
	var scored generateReply
	require.NoError(t, json.Unmarshal([]byte(h.post("/inference/v1/generate", `{"token_ids":`+string(ids)+`,"sampling_params":{"max_tokens":1,"prompt_logprobs":0}}`)), &scored))
	require.Len(t, scored.PromptLP, 15)
	require.Nil(t, scored.PromptLP[0])
	for i, l := range c.Logprobs.Content {
		require.InDelta(t, scored.PromptLP[3+i][strconv.Itoa(int(c.TokenIDs[i]))].Logprob, l.Logprob, 1e-4)
		require.Len(t, l.Top, vocabulary)
		mass := 0.0
		for n, a := range l.Top {
			mass += math.Exp(a.Logprob)
			if n > 1 {
				require.LessOrEqual(t, a.Logprob, l.Top[n-1].Logprob)
			}
		}
		require.InDelta(t, 1, mass, 1e-4)
		require.Equal(t, c.TokenIDs[i], l.Top[0].ID, "the sampled one stands first")
	}
}

// Of the distribution that was sampled, what truncation excludes has no mass.
func TestLocalProcessedLogprobs(t *testing.T) {
	h, _ := startLocal(t, nil)
	var got generateReply
	require.NoError(t, json.Unmarshal([]byte(h.post("/inference/v1/generate",
		`{"token_ids":[1,2,3],"sampling_params":{"seed":5,"max_tokens":12,"temperature":0.5,"top_k":4,"logprobs":6,"ignore_eos":true}}`)), &got))
	for _, l := range got.Choices[0].Logprobs.Content {
		mass, none := 0.0, 0
		for _, a := range l.Top {
			mass += math.Exp(a.Logprob)
			if a.Logprob == least {
				none++
			}
		}
		require.InDelta(t, 1, mass, 1e-5, "four tokens are all of it")
		require.Equal(t, 2, none)
	}
}

// A pause that keeps holds the real engine between two steps.
func TestLocalPauseKeep(t *testing.T) {
	h, e := startLocal(t, nil)
	begin := func() (ended func() generateReply) {
		before := e.Stats().GeneratedTokens
		ended = h.background("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"seed":1,"max_tokens":500,"ignore_eos":true}}`)
		h.until("tokens are sampled", func() bool { return e.Stats().GeneratedTokens >= before+5 })
		h.post("/pause?mode=keep", "")
		return ended
	}
	running := begin()
	for e.Stats().Running == 0 { // on a busy machine it may have ended before the pause came
		h.post("/resume", "")
		running()
		running = begin()
	}
	steps := e.Stats().Steps
	h.post("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"x"}}`)
	h.post("/update_weight_version", `{"new_version":"7"}`)
	require.LessOrEqual(t, e.Stats().Steps, steps+1)
	h.post("/resume", "")
	got := running().Choices[0]
	require.Len(t, got.TokenIDs, 500)
	require.Equal(t, "7", got.Versions[len(got.Versions)-1].Version)
	var again generateReply
	require.NoError(t, json.Unmarshal([]byte(h.post("/inference/v1/generate", `{"token_ids":[1],"sampling_params":{"seed":1,"max_tokens":500,"ignore_eos":true}}`)), &again))
	require.Equal(t, got.TokenIDs, again.Choices[0].TokenIDs, "the same weights: the pause changed nothing")
}

// The project's own client of vLLM takes this server for one: sampling, scoring, proven updates, cancellation.
func TestLocalConformance(t *testing.T) {
	probe := []int32{5, 9, 13, 200, 4, 77, 31, 8}
	enginetest.Run(t, func(t *testing.T) enginetest.Subject {
		h, e := startLocal(t, nil)
		logprobs, err := e.Logprobs(context.Background(), probe)
		require.NoError(t, err)
		h.post("/update_weight_version", `{"new_version":"0"}`)
		client, err := vllm.New(t.Context(), vllm.Options{URLs: []string{h.http.URL}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		folder := writeWeights(t)
		return enginetest.Subject{
			Engine: client, Vocab: vocabulary, Running: func() int { return e.Stats().Running + e.Stats().Waiting },
			Weights: func(version int32, err error) engines.Weights {
				w := engines.Weights{Version: version, Path: folder, Probe: &engines.Probe{TokenIDs: probe, Logprobs: slices.Clone(logprobs), Tolerance: 1e-3}}
				if err != nil {
					w.Probe.Logprobs[3]--
				}
				return w
			},
		}
	})
}

// writeWeights makes a folder that the client looks into; Reload does not.
func writeWeights(t *testing.T) string {
	folder := filepath.Join(t.TempDir(), "weights")
	weights, err := policy.Scratch(policy.ScratchConfig{HiddenSize: 16, IntermediateSize: 16, NumLayers: 1, NumHeads: 2, NumKVHeads: 1, MaxPositions: 8, InitStd: 0.1}, "ab", "", 1, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	require.NoError(t, weights.SaveHF(folder, modelfile.F32))
	require.NoError(t, weights.Close())
	return folder
}

// Two runs train on one server by mistake: the first one notices with its next completion.
func TestTwoRunsOnThisServer(t *testing.T) {
	h, e := startLocal(t, nil)
	probe := []int32{5, 9, 13, 200, 4, 77, 31, 8}
	logprobs, err := e.Logprobs(t.Context(), probe)
	require.NoError(t, err)
	w := engines.Weights{Version: 3, Path: writeWeights(t), Probe: &engines.Probe{TokenIDs: probe, Logprobs: logprobs, Tolerance: 1e-3}}
	var clients []*vllm.Engine
	for range 2 {
		client, err := vllm.New(t.Context(), vllm.Options{URLs: []string{h.http.URL}, HealthEvery: time.Hour})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		clients = append(clients, client)
	}
	ask := engines.Request{ID: "r", Prompt: []int32{1, 2}, Sampling: engines.Sampling{MaxTokens: 4, Temperature: 1, TopP: 1}}
	for _, client := range clients {
		require.NoError(t, client.Update(t.Context(), w))
		c, err := client.Generate(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, []int32{3, 3, 3, 3}, c.Versions)
	}
	_, err = clients[0].Generate(t.Context(), ask)
	require.ErrorIs(t, err, engines.ErrForeign)
	require.ErrorIs(t, clients[0].Update(t.Context(), w), engines.ErrForeign)
	_, err = clients[1].Generate(t.Context(), ask)
	require.NoError(t, err)
}
