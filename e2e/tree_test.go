package e2e_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// treeTiny makes the trajectories of a tiny run branch.
var treeTiny = []string{"--set", "rollout.tree={rule: entropy, roots: 8}", "--set", "algorithm.advantage={name: arpo}"}

// A run of trees is resumed bit for bit, and replayed from its log; every turn is sampled once, and trained for each of its leaves.
func TestTreesAreResumedAndReplayed(t *testing.T) {
	needTorch(t)
	for name, args := range map[string][]string{
		"entropy":          treeTiny,
		"step_random":      {"--set", "rollout.tree={rule: step_random, roots: 8, nodes: 3}", "--set", "algorithm.advantage={name: tree, shared: sqrt}"},
		"token_nll":        {"--set", "rollout.tree={rule: token_nll, roots: 8, nodes: 3, branches: 1}", "--set", "rollout.max_new_tokens=8", "--set", "algorithm.advantage={name: tree, inter: 0, intra: 0, local: 1, global: 1, normalize: leave-one-out, shared: sqrt}"},
		"token_nll, async": append([]string{"--set", "rollout.tree={rule: token_nll, roots: 8, nodes: 2, branches: 2}", "--set", "rollout.max_new_tokens=8", "--set", "algorithm.advantage={name: arpo}"}, asyncTiny...),
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
			db := opened(t, whole)
			forks, shared, within := 0, 0, 0
			eachTrained(t, db, func(_ int, _ store.Batch, g trajectory.Group) {
				require.Len(t, g.Trajectories, 32)
				for _, tr := range g.Trajectories {
					if tr.Branch != "" {
						forks++
						shared += tr.Forked + tr.ForkedAt
						within += tr.ForkedAt
					}
				}
			})
			require.Greater(t, forks, 10)
			require.Positive(t, shared)
			require.Equal(t, strings.HasPrefix(name, "token_nll"), within > 0)
		})
	}
}

// countingCalculator keeps state of a trajectory, and writes down what it is asked.
const countingCalculator = `from agentfly import state, tool

@tool(stateful=True, deterministic=True)
def calculator(expression: str) -> str:
    """Computes."""
    state()["calls"] = state().get("calls", 0) + 1
    with open(LOG, "a") as f:
        f.write(expression + "\n")
    if state()["calls"] > 3:
        raise ValueError("too many")
    return str(int(eval(expression)))
`

// Trajectories with a tool that keeps state branch: a fork makes the calls before it again. Such a run is resumed bit for bit, where what had begun begins
// anew, and replayed from its log, which calls nothing.
func TestTreesWithStatefulTools(t *testing.T) {
	needTorch(t)
	dir := t.TempDir()
	log, file := filepath.Join(dir, "calls"), filepath.Join(dir, "calculator.py")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(countingCalculator, "LOG", strconv.Quote(log))), 0o600))
	calls := func() int {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return strings.Count(string(text), "\n")
	}
	args := append([]string{"--set", "agent.tools=[{python: " + file + "}]", "--set", "agent.max_turns=3"}, treeTiny...)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	trainShort(t, whole, args...)
	made := calls()
	status, out, errs := command("", "replay", whole)
	require.Zero(t, status, "%s%s", out, errs)
	require.Regexp(t, `(?m)^4 batches, 512 trajectories, \d+ tokens sampled again, weights: identical$`, out)
	require.Equal(t, made, calls(), "a replay calls nothing")
	trainShort(t, parts, append(args, "--set", "trainer.steps=2")...)
	trainShort(t, parts, append(args, "--resume")...)
	rewards, weights := curve(t, whole)
	again, same := curve(t, parts)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, same))
	requireSameMetrics(t, whole, parts)

	db := opened(t, whole)
	own, shared := 0, 0 // calls
	eachTrained(t, db, func(_ int, _ store.Batch, g trajectory.Group) {
		for _, tr := range g.Trajectories {
			require.Empty(t, tr.Err)
			for k, turn := range tr.Turns {
				for _, r := range turn.Results {
					switch {
					case r.Cause != "" && r.Cause != trajectory.CauseRaised:
					case k < tr.Forked:
						shared++
					default:
						own++
					}
				}
			}
		}
	})
	require.Positive(t, shared)
	require.Equal(t, own+shared, made, "each call once, and once for each trajectory that forks behind it")
}

func TestKillsOfTrees(t *testing.T) {
	needTorch(t)
	k, most := newKilled(t), kills(t, 2)
	k.args = treeTiny
	k.endAlike(most, func(dir string) { requireWhole(t, dir, killSteps, 0) })
	k = newKilled(t)
	k.args = []string{"--set", "rollout.tree={rule: token_nll, roots: 8, nodes: 3, branches: 1}", "--set", "rollout.max_new_tokens=8", "--set", "algorithm.advantage={name: tree}"}
	k.endAlike(most, func(dir string) { requireWhole(t, dir, killSteps, 0) })
}

// The trajectories of a program of its own branch: killed at random moments the run comes to the same end, and its replay to the same weights. Calls before a
// fork are sampled once; a leaf that asks for something else there fails and says so, and the run goes on without it.
func TestAgentsOfTheirOwnBranch(t *testing.T) {
	needTorch(t)
	agent := strings.Replace(guestAgent, "range(2)", "range(3)", 1)
	job := strings.Replace(guestJob, "processes: 4", "processes: 4, deterministic: true", 1)
	for name, args := range map[string][]string{
		"step_random": {"--set", "rollout.tree={rule: step_random, roots: 2}", "--set", "algorithm.advantage={name: tree}"},
		"entropy":     {"--set", "rollout.tree={rule: entropy, roots: 2, base: 0.7}", "--set", "algorithm.advantage={name: arpo}"},
		"token_nll":   {"--set", "rollout.tree={rule: token_nll, roots: 2}", "--set", "algorithm.advantage={name: tree, local: 1, global: 1}"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKilled(t)
			k.job, k.args = guest(t, job, agent), args
			whole := k.endAlike(kills(t, 1), func(string) {})
			forks, within := 0, 0
			ids := map[string][]int32{} // of what was sampled, by the names of turns
			db := opened(t, whole)
			require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
				tr := r.Trajectory
				require.Empty(t, tr.Err)
				require.Len(t, tr.Turns, 3)
				if tr.Branch != "" {
					forks++
					within += tr.ForkedAt
				}
				for i, turn := range tr.Turns {
					require.Equal(t, i < tr.Forked, turn.SharedBy() != tr.ID, "the turns of its own begin at the fork")
					of := tr.Samples[turn.Sample].TokenIDs[:turn.CompletionEnd]
					if was := ids[turn.Shared]; was != nil {
						require.Equal(t, was, of)
					}
					ids[turn.Shared] = of
				}
				return nil
			}))
			require.Greater(t, forks, 8)
			require.Equal(t, name == "token_nll", within > 0)
			status, out, errs := command("", "replay", whole)
			require.Zero(t, status, "%s%s", out, errs)
			require.Contains(t, out, "weights: identical\n")
			status, out, errs = command("", "inspect", "tree", "--run", whole)
			require.Zero(t, status, "%s%s", out, errs)
			require.Contains(t, out, ".0")
		})
	}

	clock := strings.Replace(agent, `"content": "b"`, `"content": "b" + str(os.getpid() % 10).translate(str.maketrans("0123456789", "abcdefghab"))`, 1)
	run := filepath.Join(t.TempDir(), "clock")
	status, out, errs := command("", "train", guest(t, job, clock), "--output", run, "--set", "rollout.tree={rule: step_random, roots: 2}", "--set", "trainer.steps=2")
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out+errs, "the agent does not do again what was recorded before the fork (agent.deterministic): call 2 asks for something else than was recorded: message 3 is ")
}
