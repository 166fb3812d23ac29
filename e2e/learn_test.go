package agentfly_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
