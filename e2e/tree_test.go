package e2e_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// treeTiny makes the trajectories of a tiny run branch.
var treeTiny = []string{"--set", "rollout.tree={rule: entropy, roots: 8}", "--set", "algorithm.advantage={name: arpo}"}

// A run of trees is resumed bit for bit, and replayed from its log; every turn is sampled once, and trained for each of its leaves.
func TestTreesAreResumedAndReplayed(t *testing.T) {
	needTorch(t)
	for name, args := range map[string][]string{
		"entropy":          treeTiny,
		"step_random":      {"--set", "rollout.tree={rule: step_random, roots: 8, nodes: 3}", "--set", "algorithm.advantage={name: tree, shared: sqrt}"},
		"token_nll":        {"--set", "rollout.tree={rule: token_nll, roots: 8, nodes: 3, branches: 1}", "--set", "algorithm.advantage={name: tree, inter: 0, intra: 0, local: 1, global: 1, normalize: leave-one-out, shared: sqrt}"},
		"token_nll, async": append([]string{"--set", "rollout.tree={rule: token_nll, roots: 8, nodes: 2, branches: 2}", "--set", "algorithm.advantage={name: arpo}"}, asyncTiny...),
		"async":            append(append([]string{}, treeTiny...), asyncTiny...),
	} {
		t.Run(name, func(t *testing.T) {
			whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
			trainShort(t, whole, args...)
			trainShort(t, parts, append(args, "--set", "trainer.steps=2")...)
			trainShort(t, parts, append(args, "--resume")...)
			if !strings.Contains(name, "async") {
				rewards, weights := curve(t, whole)
				again, same := curve(t, parts)
				require.Equal(t, rewards, again)
				require.True(t, bytes.Equal(weights, same))
				requireSameMetrics(t, whole, parts)
			}
			for _, dir := range []string{whole, parts} {
				status, out, errs := command("", "replay", dir)
				require.Zero(t, status, "%s%s", out, errs)
				require.Regexp(t, `(?m)^4 batches, 512 trajectories, \d+ tokens sampled again, weights: identical$`, out)
			}
			db, err := store.OpenReader(filepath.Join(whole, "store.db"))
			require.NoError(t, err)
			defer db.Close()
			log, err := db.Recover(context.Background(), 0)
			require.NoError(t, err)
			forks, shared, within := 0, 0, 0
			for _, b := range log.Batches {
				groups, err := db.Groups(context.Background(), b.Groups, "")
				require.NoError(t, err)
				for _, g := range groups {
					require.Len(t, g.Trajectories, 32)
					for _, tr := range g.Trajectories {
						if tr.Branch != "" {
							forks++
							shared += tr.Forked + tr.ForkedAt
							within += tr.ForkedAt
						}
					}
				}
			}
			require.Greater(t, forks, 10)
			require.Positive(t, shared)
			require.Equal(t, strings.HasPrefix(name, "token_nll"), within > 0)
		})
	}
}

func TestKillsOfTrees(t *testing.T) {
	needTorch(t)
	k, most := newKilled(t), kills(t, 2)
	k.args = treeTiny
	k.endAlike(most, func(dir string) { requireWhole(t, dir, 0) })
	k = newKilled(t)
	k.args = []string{"--set", "rollout.tree={rule: token_nll, roots: 8, nodes: 3, branches: 1}", "--set", "algorithm.advantage={name: tree}"}
	k.endAlike(most, func(dir string) { requireWhole(t, dir, 0) })
}
