package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// halfRun trains the tiny job in bfloat16 and returns each step's reward, the largest gap between engine and trainer, and the
// checkpoint's weights. The engine computes in float32: token weights correct for what lies between.
func halfRun(t *testing.T, dir string, args ...string) (rewards []float64, gap float64, weights []byte) {
	t.Helper()
	sets := []string{"train", "--output", dir, "--set", "model.dtype=bfloat16", "--set", "algorithm.correction.kind=tis_token"}
	status, out, errs := command("", append(append(sets, args...), "examples/tiny.yaml")...)
	require.Zero(t, status, "%s%s", out, errs)
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if r, ok := m["reward/mean"].(float64); ok {
			rewards = append(rewards, r)
			gap = max(gap, m["update/mismatch_max"].(float64))
		}
	}
	weights, err = os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
	require.NoError(t, err)
	return rewards, gap, weights
}

func TestTinyRunLearnsInBFloat16(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	rewards, gap, weights := halfRun(t, dir, "--set", "trainer.steps=60", "--set", "trainer.learning_rate=2e-3", "--set", "algorithm.entropy=0.05")
	t.Logf("reward %.3f to %.3f, gap %.4f", rewards[0], last(rewards, 5), gap)
	require.Less(t, rewards[0], 0.2)
	require.Greater(t, last(rewards, 5), 0.5, "the reward must rise: %v", rewards)
	require.Greater(t, gap, 1e-3, "the trainer does not compute in bfloat16")
	require.Less(t, gap, 1.0)

	// The checkpoint holds the float32 master weights: most of them are not what bfloat16 would round them to.
	header := int(weights[0]) | int(weights[1])<<8 | int(weights[2])<<16
	require.Contains(t, string(weights[8:8+header]), `"dtype":"F32"`)
	data, fine := weights[8+header:], 0
	for i := 0; i < len(data); i += 4 {
		if data[i] != 0 || data[i+1] != 0 { // the bits that bfloat16 lacks
			fine++
		}
	}
	require.Greater(t, fine, len(data)/8)
}

func TestBFloat16RunResumesBitForBit(t *testing.T) {
	needTorch(t)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	rewards, _, weights := halfRun(t, whole, "--set", "trainer.steps=6")
	halfRun(t, parts, "--set", "trainer.steps=4")
	again, _, same := halfRun(t, parts, "--set", "trainer.steps=6", "--resume")
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, same))
}

// An engine that computes in bfloat16 samples from another distribution than the trainer's: the gap is in the
// metrics, a correction weighs it, and the job learns.
func TestBFloat16EngineIsCorrectedFor(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--seed", "2", "--output", dir, "--set", "engine.dtype=bfloat16", "--set", "algorithm.correction.kind=tis_token", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	data, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	var summary struct {
		MismatchMax float64            `json:"mismatch_max"`
		Reward      map[string]float64 `json:"reward"`
	}
	require.NoError(t, json.Unmarshal(data, &summary))
	require.Less(t, summary.Reward["first"], 0.1)
	require.Greater(t, summary.Reward["last"], 0.8)
	require.Greater(t, summary.MismatchMax, 1e-3, "the matrices are not in bfloat16")
	require.Less(t, summary.MismatchMax, 0.5)
}
