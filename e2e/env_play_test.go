package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/sandbox"
)

// A seed beyond the tasks that are made for it begins an episode by itself, and says so. What is played says whether the goal was reached.
func TestEnvPlayByTheSeedAlone(t *testing.T) {
	status, out, errs := envCommand(t.Context(), "", "env", "play", "sokoban", "--solve", "--seed", "2147483647")
	require.Zero(t, status, errs)
	require.Contains(t, errs, "--seed 2147483647: no task of the environment's own has this number; the episode begins by its seed alone")
	require.Contains(t, out, "the goal is reached]")
	require.Regexp(t, `\d+ actions, reward 1, the goal is reached\n$`, out)

	status, _, errs = envCommand(t.Context(), "", "env", "play", "sokoban", "--solve", "--seed", "3")
	require.Zero(t, status, errs)
	require.NotContains(t, errs, "by its seed alone")

	status, out, _ = envCommand(t.Context(), "up\n", "env", "play", "frozenlake", "--seed", "3")
	require.Zero(t, status)
	require.NotContains(t, out, "the goal is reached")
}

// An environment with tools of its own lists its actions as calls, which a choice by chance reads.
func TestEnvPlayToolsByChance(t *testing.T) {
	if _, err := sandbox.Open(t.Context(), sandbox.Auto); err != nil {
		t.Skip(err)
	}
	status, out, errs := envCommand(t.Context(), "", "env", "play", "mle", "--random", "--seed", "1", "--param", "max_steps=3")
	require.Zero(t, status, errs)
	require.Regexp(t, `3 actions, reward [0-9.]+\n$`, out)
}
