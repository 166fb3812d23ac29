//go:build torch

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
)

const serveTemplate = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

// startServe runs the command serve on a free port. stop ends it and returns what it said on standard error.
func startServe(t *testing.T, model string, flags ...string) (url string, stop func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	reader, writer := io.Pipe()
	status := make(chan int, 1)
	var errs strings.Builder
	go func() {
		status <- agentfly.Run(ctx, append([]string{"agentfly", "serve", model, "--port", "0"}, flags...), strings.NewReader(""), writer, &errs)
		writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	for url == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), " on "); ok {
			url = after
		}
	}
	require.NotEmpty(t, url, "%s", &errs)
	go func() { _, _ = io.Copy(io.Discard, reader) }() // ends with the writer
	return url, func() string {
		cancel()
		require.Zero(t, <-status, "%s", &errs)
		return errs.String()
	}
}

// The whole command: it serves, takes new weights, and ends well when it is told to.
func TestServeCommand(t *testing.T) {
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	for i, dir := range dirs {
		p, err := policy.Scratch(policy.ScratchConfig{HiddenSize: 32, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, MaxPositions: 64, InitStd: 0.3},
			"abcdefghijklmnopqrstuvwxyz<> ", serveTemplate, uint64(i+1), policy.Options{Device: "cpu"})
		require.NoError(t, err)
		require.NoError(t, p.SaveHF(dir, modelfile.F32))
		require.NoError(t, p.Close())
	}
	url, stop := startServe(t, dirs[0], "--served-model-name", "m", "--api-key", "k", "--weight-updates")
	post := func(path, body string) string {
		r, err := http.NewRequest("POST", url+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer k")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, "%s", data)
		return string(data)
	}
	score := func() (out []float64) {
		var reply struct {
			PromptLogprobs []map[string]struct {
				Logprob float64 `json:"logprob"`
			} `json:"prompt_logprobs"`
		}
		require.NoError(t, json.Unmarshal([]byte(post("/inference/v1/generate", `{"token_ids":[5,6,7,8,9],"sampling_params":{"max_tokens":1,"prompt_logprobs":0}}`)), &reply))
		for _, m := range reply.PromptLogprobs {
			for _, v := range m {
				out = append(out, v.Logprob)
			}
		}
		return out
	}
	want := func(dir string) (out []float64) {
		_, text, _ := command(`{"ids": [5,6,7,8,9]}`+"\n", "inspect", "score", "--model", dir)
		var reply struct{ Logprobs []float64 }
		require.NoError(t, json.Unmarshal([]byte(text), &reply), text)
		return reply.Logprobs
	}
	require.Contains(t, post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":4}`), `"role":"assistant"`)
	require.InDeltaSlice(t, want(dirs[0]), score(), 1e-5)
	post("/pause?mode=keep", "")
	post("/collective_rpc", `{"method":"reload_weights","kwargs":{"weights_path":"`+dirs[1]+`"}}`)
	post("/update_weight_version", `{"new_version":"1"}`)
	post("/resume", "")
	require.InDeltaSlice(t, want(dirs[1]), score(), 1e-5)
	require.Contains(t, post("/inference/v1/generate", `{"token_ids":[5],"sampling_params":{"max_tokens":1}}`), `"weight_versions":[{"version":"1","start":0,"end":1}]`)
	http.DefaultClient.CloseIdleConnections()
	require.Empty(t, stop())
}

// The template's day is that of the training, where the folder records it, unless a flag tells another.
func TestServeTellsTheDateOfTheTraining(t *testing.T) {
	p, err := policy.Scratch(policy.ScratchConfig{HiddenSize: 32, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, MaxPositions: 64, InitStd: 0.3},
		"abcdefghijklmnopqrstuvwxyz<> 0123456789-", "{{ strftime_now('%Y-%m-%d') }}"+serveTemplate, 1, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	base, trained := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "trained")
	require.NoError(t, p.SaveHF(base, modelfile.F32))
	_, err = p.Now("2024-07-26")
	require.NoError(t, err)
	require.NoError(t, p.SaveHF(trained, modelfile.F32))
	require.NoError(t, p.Close())
	day := func(model string, flags ...string) string {
		url, stop := startServe(t, model, flags...)
		defer stop()
		reply, err := http.Post(url+"/tokenize", "application/json", strings.NewReader(`{"messages": [{"role": "user", "content": "a"}], "return_token_strs": true}`))
		require.NoError(t, err)
		defer reply.Body.Close()
		var got struct {
			Strings []string `json:"token_strs"`
		}
		require.NoError(t, json.NewDecoder(reply.Body).Decode(&got))
		return strings.Join(got.Strings[:10], "")
	}
	before := time.Now().Format(time.DateOnly)
	now := day(base)
	require.Contains(t, []string{before, time.Now().Format(time.DateOnly)}, now)
	require.Equal(t, "2024-07-26", day(trained))
	require.Equal(t, "2031-01-02", day(trained, "--template-date", "2031-01-02"))
	require.NotEqual(t, "2024-07-26", day(trained, "--template-date", "today"))
	require.Equal(t, "2031-01-02", day(base, "--template-date", "2031-01-02"))
}

// --kv-cache-memory-bytes gives as many blocks of 16 tokens as it holds, in either type; the values of a token of bfloat16 lie in panels of 16 elements.
func TestServeCountsTheBlocksOfItsMemory(t *testing.T) {
	p, err := policy.Scratch(policy.ScratchConfig{HiddenSize: 40, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, MaxPositions: 128, InitStd: 0.3},
		"abcdefghijklmnopqrstuvwxyz<> ", serveTemplate, 1, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	model := filepath.Join(t.TempDir(), "model")
	require.NoError(t, p.SaveHF(model, modelfile.F32))
	require.NoError(t, p.Close())
	const heads = 2 * 2 // in all layers; 10 wide
	for dtype, token := range map[string]int{"float32": heads * (10 + 10) * 4, "bfloat16": heads * (10 + 16) * 2} {
		flags := func(memory, length int) []string {
			return []string{"--dtype", dtype, "--kv-cache-memory-bytes", strconv.Itoa(memory), "--max-model-len", strconv.Itoa(length)}
		}
		_, stop := startServe(t, model, flags(64*token, 64)...)
		require.Empty(t, stop(), dtype)
		for _, memory := range []int{8, token - 1} {
			status, _, errs := command("", append([]string{"serve", model, "--port", "0"}, flags(memory, 64)...)...)
			require.Equal(t, 2, status, errs)
			require.Contains(t, errs, fmt.Sprintf("--kv-cache-memory-bytes is %d; one token takes %d", memory, token), dtype)
		}
		for _, c := range []struct{ memory, length, tokens int }{{64*token - 1, 64, 63}, {64 * token, 65, 64}, {80*token - 1, 65, 79}} {
			status, _, errs := command("", append([]string{"serve", model, "--port", "0"}, flags(c.memory, c.length)...)...)
			require.Equal(t, 1, status, errs)
			require.Contains(t, errs, fmt.Sprintf("CacheTokens %d in blocks of 16 do not hold one sequence of MaxModelLen %d", c.tokens, c.length), dtype)
		}
	}
}
