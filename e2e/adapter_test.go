package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Adapters alone learn the task on the frozen random model, and the run's files are what their readers expect.
func TestTinyRunLearnsWithAdapters(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	rewards, _ := trainTiny(t, dir, "--set", "model.lora.rank=8", "--set", "trainer.learning_rate=3e-3")
	require.Less(t, rewards[0], 0.2)
	require.Greater(t, last(rewards, 5), 0.75, "the reward must rise: %v", rewards)
	checkpoint := filepath.Join(dir, "checkpoints", "last")
	data, err := os.ReadFile(filepath.Join(checkpoint, "adapter", "adapter_config.json"))
	require.NoError(t, err)
	var c struct {
		R     int     `json:"r"`
		Alpha float64 `json:"lora_alpha"`
		Base  string  `json:"base_model_name_or_path"`
	}
	require.NoError(t, json.Unmarshal(data, &c))
	require.Equal(t, 8, c.R)
	require.Equal(t, 16.0, c.Alpha)
	require.True(t, filepath.IsAbs(c.Base) && filepath.Base(c.Base) == "model", c.Base)

	// The merged checkpoint, the base with the adapter, and the base alone.
	score := func(args ...string) []byte {
		status, out, errs := command(`{"ids": [5, 9, 7, 3, 11, 4, 8]}`+"\n", append([]string{"inspect", "score"}, args...)...)
		require.Zero(t, status, errs)
		return []byte(out)
	}
	var merged, base struct{ Logprobs []float64 }
	require.NoError(t, json.Unmarshal(score("--model", checkpoint), &merged))
	require.NoError(t, json.Unmarshal(score("--model", c.Base), &base))
	require.NotEqual(t, base.Logprobs, merged.Logprobs, "a checkpoint's weights are merged")
}

func TestAdapterRunResumesBitForBit(t *testing.T) {
	needTorch(t)
	lora := []string{"--set", "model.lora.rank=4", "--set", "model.lora.targets=[q_proj, v_proj, down_proj]", "--set", "trainer.learning_rate=3e-3"}
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	rewards, weights := trainTiny(t, whole, append(lora, "--set", "trainer.steps=6")...)
	trainTiny(t, parts, append(lora, "--set", "trainer.steps=4")...)
	again, same := trainTiny(t, parts, append(lora, "--set", "trainer.steps=6", "--resume")...)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, same))

	// An adapter is begun from PEFT's files too.
	more := filepath.Join(t.TempDir(), "more")
	path := filepath.Join(whole, "checkpoints", "last", "adapter")
	_, _ = trainTiny(t, more, "--set", "model.lora.path="+path, "--set", "trainer.steps=1")
	status, _, errs := command("", "train", "--output", filepath.Join(t.TempDir(), "none"), "--set", "model.lora.path="+t.TempDir(), "examples/tiny.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "holds no adapter (adapter_config.json); name the folder of a PEFT adapter")
	status, _, errs = command("", "train", "--output", parts, "--resume", "--set", "trainer.steps=7", "examples/tiny.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "the run trained an adapter so far, and model.lora is not set now; give it back, or begin a new run with --output")
}
