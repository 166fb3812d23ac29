package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/sandbox"
)

func TestTinyRunLearnsAndRepeatsBitForBit(t *testing.T) {
	needTorch(t)
	train := func(args ...string) ([]float64, []byte) {
		dir := filepath.Join(t.TempDir(), "run")
		status, out, errs := command("", append([]string{"train", "--output", dir}, append(args, "examples/tiny.yaml")...)...)
		require.Zero(t, status, "%s%s", out, errs)
		require.FileExists(t, filepath.Join(dir, "summary.json"))
		return curve(t, dir)
	}
	rewards, weights := train()
	require.Greater(t, last(rewards, 5), 0.9, "the reward must rise: %v", rewards)
	require.Less(t, rewards[0], 0.4)

	again, sameWeights := train()
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, sameWeights), "the final weights differ")

	shuffled, _ := train("--set", "control.shuffle_rewards=true")
	require.Less(t, last(shuffled, 5), 0.3, "with shuffled rewards there is nothing to learn: %v", shuffled)
}

// With control.tools_off no call is answered, so the tiny job, whose reward needs one, has nothing to learn from.
func TestControlToolsOff(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", "--output", dir, "--set", "control.tools_off=true", "--set", "trainer.steps=4", "examples/tiny.yaml")
	require.Zero(t, status, "%s%s", out, errs)
	rewards, _ := curve(t, dir)
	require.Equal(t, []float64{0, 0, 0, 0}, rewards)
}

// Algorithms of different kinds learn the tiny job, each from its first 40 steps: a critic, a baseline from greedy rollouts,
// no baseline but credit by turn, ratios of whole sequences over two updates a batch. With permuted rewards one of them does
// not. scripts/algorithms_table.sh runs all of them to the threshold.
func TestAlgorithmsLearn(t *testing.T) {
	needTorch(t)
	train := func(t *testing.T, algorithm string, args ...string) []float64 {
		dir := filepath.Join(t.TempDir(), "run")
		rewards, _ := trainTiny(t, dir, append(args, "--set", "trainer.steps=40", "--set", "algorithm={"+algorithm+"}")...)
		require.Len(t, rewards, 40)
		require.Less(t, rewards[0], 0.1)
		return rewards
	}
	const critic = "advantage: gae, loss: ppo_clip, entropy: 0.1"
	for name, algorithm := range map[string]string{
		"critic": critic,
		"greedy": "advantage: remax, loss: reinforce, entropy: 0.04",
		"turns":  "advantage: {name: turn, mode: discounted}, loss: {name: cispo, bound: relative}, entropy: 0.04",
		"gspo":   "advantage: grpo, loss: gspo, entropy: 0.1, mini_batches: 2",
	} {
		t.Run(name, func(t *testing.T) {
			rewards := train(t, algorithm)
			require.Greater(t, last(rewards, 5), 0.5, "the reward must rise: %v", rewards)
		})
	}
	t.Run("control", func(t *testing.T) {
		rewards := train(t, critic, "--set", "control.shuffle_rewards=true")
		require.Less(t, last(rewards, 5), 0.2, "with permuted rewards there is nothing to learn: %v", rewards)
	})
}

// Each kind of agent samples and trains with its example job. scripts/agents_table.sh runs them to their end.
func TestAgentJobs(t *testing.T) {
	needTorch(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	for _, kind := range []string{"react", "code", "search_r1", "action", "custom"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "code" {
				if _, err := sandbox.Open(t.Context(), sandbox.Auto); err != nil {
					t.Skip(err)
				}
			}
			dir := filepath.Join(t.TempDir(), "run")
			status, out, errs := command("", "train", "examples/agents_"+kind+".yaml", "--output", dir, "--set", "trainer.steps=2")
			require.Equal(t, 0, status, "%s%s", out, errs)
			data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
			require.NoError(t, err)
			require.Contains(t, string(data), `"trajectories/finished":128`)
			require.NotContains(t, string(data), `"tools/calls":0,`)
			require.Equal(t, 2, strings.Count(string(data), `"reward/mean"`))
		})
	}
}

// The example's tool and reward are Python functions; with shuffled rewards there is nothing to learn.
func TestAPythonToolAndRewardLearn(t *testing.T) {
	needPython(t)
	needTorch(t)
	train := func(args ...string) []float64 {
		dir := filepath.Join(t.TempDir(), "run")
		status, out, errs := command("", append([]string{"train", "--output", dir, "examples/python_tool.yaml"}, args...)...)
		require.Zero(t, status, "%s%s", out, errs)
		rewards, _ := curve(t, dir)
		return rewards
	}
	rewards := train()
	require.Less(t, rewards[0], 0.2)
	require.Greater(t, last(rewards, 5), 0.9, "the reward must rise: %v", rewards)
	shuffled := train("--set", "control.shuffle_rewards=true", "--set", "trainer.steps=30")
	require.Less(t, last(shuffled, 5), 0.3, "with shuffled rewards there is nothing to learn: %v", shuffled)
}
