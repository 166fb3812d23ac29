package weights

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/job"
)

func served(t *testing.T, trainer string, rank int, sets ...string) vllm.ServeOptions {
	j, err := job.Load("../../examples/tiny_vllm.yaml", sets...)
	require.NoError(t, err)
	return serveOptions(j, trainer, rank)
}

// The server's device and type follow the trainer's unless the job says otherwise: bfloat16 on CUDA, where FlashAttention
// takes no float32. It takes adapters where the job sends it some.
func TestServeOptionsFollowTheJob(t *testing.T) {
	for _, c := range []struct {
		trainer string
		sets    []string
		cpu     bool
		dtype   string
		devices []int
	}{
		{"cpu", nil, true, "float32", nil},
		{"cpu", []string{"model.dtype=bfloat16"}, true, "bfloat16", nil},
		{"cuda", nil, false, "bfloat16", nil},
		{"cuda:1", []string{"model.dtype=fp32"}, false, "float32", nil},
		{"cuda", []string{"engine.serve.dtype=float16"}, false, "float16", nil},
		{"cuda", []string{"engine.serve.device=cpu"}, true, "float32", nil},
		{"cpu", []string{"engine.serve.device=cuda"}, false, "bfloat16", nil},
		{"cuda", []string{"engine.serve.device=cuda:2,3"}, false, "bfloat16", []int{2, 3}},
	} {
		o := served(t, c.trainer, 0, c.sets...)
		require.Equal(t, []any{c.cpu, c.dtype, c.devices}, []any{o.CPU, o.DType, o.Devices}, "%s %v", c.trainer, c.sets)
	}
	merged := served(t, "cpu", 20, "model.lora.rank=20")
	require.Zero(t, merged.LoRARank, "adapters are merged into the weights that it gets")
	require.Equal(t, 32, served(t, "cpu", 20, "model.lora.rank=20", "engine.weights=lora").LoRARank)
	require.Equal(t, []string{"A=1", "B=2"}, served(t, "cpu", 0, "engine.serve.env={B: \"2\", A: \"1\"}").Env)
	require.Equal(t, -1, served(t, "cpu", 0, "engine.serve.restarts=0").Restarts)
	require.False(t, merged.Sleep)
	require.Zero(t, merged.MaxLogprobs, "vLLM's own")
	for tree, want := range map[string]int{"{rule: entropy}": 21, "{rule: entropy, top: 50}": 51, "{rule: entropy, top: 5}": 20, "{rule: entropy, top: 0}": 0, "{rule: step_random}": 0} {
		require.Equal(t, want, served(t, "cpu", 0, "rollout.group_size=8", "rollout.tree="+tree).MaxLogprobs, tree)
	}
	require.Subset(t, vllm.ServeArgs(vllm.ServeOptions{MaxLogprobs: 51}), []string{"--max-logprobs", "51"})
	require.NotContains(t, vllm.ServeArgs(vllm.ServeOptions{}), "--max-logprobs")
}

// A path of the server's command is the job's, also one that names a file beside the job: it must not be looked for on PATH.
func TestTheServersCommandIsAPathOfTheJob(t *testing.T) {
	folder, home := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(folder)
	require.NoError(t, os.WriteFile("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nengine: {kind: vllm, serve: {}}\n"), 0o644))
	for command, want := range map[string]string{
		"vllm": "vllm", "./vllm": filepath.Join(folder, "vllm"), "venv/bin/vllm": filepath.Join(folder, "venv", "bin", "vllm"),
		"~/vllm": filepath.Join(home, "vllm"), "/opt/vllm": "/opt/vllm",
	} {
		j, err := job.Load("job.yaml", "engine.serve.command="+command)
		require.NoError(t, err)
		require.Equal(t, want, serveOptions(j, "cpu", 0).Command, command)
	}
}

// A completion that may take longer than an attempt's 10 minutes is not cut there and sampled again: the attempt has its time.
func TestAnAttemptHasTheTimeOfATurn(t *testing.T) {
	for turn, want := range map[string]time.Duration{"30": 10 * time.Minute, "600": 10 * time.Minute, "3600": time.Hour} {
		j, err := job.Load("../../examples/tiny_vllm.yaml", "rollout.turn_timeout="+turn)
		require.NoError(t, err)
		require.Equal(t, want, clientOptions(j).AttemptTimeout, turn)
	}
}

func TestToleranceFollowsTheTypes(t *testing.T) {
	require.Equal(t, 1e-3, vllm.Tolerance("auto", "float32", ""))
	require.Equal(t, 2.0, vllm.Tolerance("bfloat16", "float32"))
	require.Equal(t, 2.0, vllm.Tolerance("fp32", "float32", "float16"))
	j, err := job.Load("../../examples/tiny.yaml")
	require.NoError(t, err)
	s := Sync{c: Config{Job: j}}
	require.Equal(t, 1e-3, s.tolerance())
	j.Model.DType = "bfloat16"
	require.Equal(t, 2.0, s.tolerance())
	j.Engine.Tolerance = 0.5
	require.Equal(t, 0.5, s.tolerance())
}
