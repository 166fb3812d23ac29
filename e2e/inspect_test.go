package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspectTrajectoryShowsTheStoredTokens(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--output", dir, "--set", "trainer.steps=1", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	status, out, errs := command("", "inspect", "trajectory", "--run", dir)
	require.Zero(t, status, errs)
	trained := 0
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var r struct {
			Phase   string `json:"phase"`
			Samples [][]struct {
				Mask      int      `json:"mask"`
				Old       *float64 `json:"old_logprob"`
				Advantage *float64 `json:"advantage"`
			} `json:"samples"`
			Trajectory struct {
				Turns []struct {
					Start int `json:"completion_start"`
					End   int `json:"completion_end"`
				} `json:"turns"`
			} `json:"trajectory"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		sampled, masked := 0, 0
		for _, turn := range r.Trajectory.Turns {
			sampled += turn.End - turn.Start
		}
		for _, token := range r.Samples[0] {
			masked += token.Mask
			if r.Phase == "train" && token.Mask == 1 {
				require.NotNil(t, token.Old)
				require.NotNil(t, token.Advantage)
				trained++
			}
		}
		require.Equal(t, sampled, masked, "trained tokens are exactly the sampled ones")
	}
	require.Positive(t, trained)
}

func TestInspectScoreOfTrainerAndEngineAgree(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errs := command("", "train", "--output", dir, "--set", "trainer.steps=1", "examples/tiny.yaml")
	require.Zero(t, status, errs)
	type answer struct {
		Logprobs []float64 `json:"logprobs"`
		Entropy  []float64 `json:"entropy"`
		Error    string    `json:"error"`
	}
	model := filepath.Join(dir, "checkpoints", "last")
	score := func(flags ...string) (answers []answer) {
		lines := `{"ids": [1, 5, 9, 4, 4, 7, 2, 8, 3, 6]}` + "\n" + `{"ids": [3]}` + "\n" + `{"ids": [1, 100000]}` + "\n"
		status, out, errs := command(lines, append([]string{"inspect", "score", "--model", model}, flags...)...)
		require.Zero(t, status, errs)
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			var a answer
			require.NoError(t, json.Unmarshal([]byte(line), &a))
			answers = append(answers, a)
		}
		return answers
	}
	trainer, engine := score(), score("--engine")
	require.Len(t, trainer, 3)
	require.Len(t, engine, 3)
	require.Len(t, trainer[0].Logprobs, 9)
	require.Len(t, trainer[0].Entropy, 9)
	require.InDeltaSlice(t, trainer[0].Logprobs, engine[0].Logprobs, 2e-5)
	for _, bad := range []answer{trainer[1], trainer[2], engine[1], engine[2]} {
		require.NotEmpty(t, bad.Error)
	}
	bare := t.TempDir() // ids need no tokenizer
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(model, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(bare, name), data, 0o600))
	}
	model = bare
	require.Equal(t, trainer, score())
	require.Equal(t, engine, score("--engine"))
}

func TestInspectScoreInBFloat16(t *testing.T) {
	needTorch(t)
	score := func(dtype string) []float64 {
		status, out, errs := command(`{"ids": [5, 9, 7, 3, 11, 4, 8]}`+"\n", "inspect", "score", "--model", "examples/tiny/model", "--dtype", dtype)
		require.Zero(t, status, errs)
		var got struct{ Logprobs []float64 }
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		return got.Logprobs
	}
	exact, rounded := score("fp32"), score("bfloat16")
	require.NotEqual(t, exact, rounded)
	require.InDeltaSlice(t, exact, rounded, 0.2)
	status, _, errs := command("", "inspect", "score", "--model", "examples/tiny/model", "--dtype", "fp16")
	require.Equal(t, 2, status)
	require.Contains(t, errs, `--dtype is "fp16"; allowed: fp32, bfloat16`)
}
