package schedule

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
)

func TestEffectiveSaysWhatTheModeDoes(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nrollout: {groups: 4, %}\nalgorithm: {correction: {kind: tis_token}}\n"
	for block, want := range map[string]string{
		"mode: sync": "rollouts     sync: a step samples its 4 groups with its own policy version, waits for all of them, and trains\n" +
			"cut          a completion that a token limit cut ends its trajectory, which the rewards score without an answer (rollout.cut: score)\n" +
			"deadlines    trajectory none of its own, completion 600 s, tool call 30 s\n",
		"mode: async, max_staleness: 2, stale: drop, timeout: 90": "rollouts     async: groups begin whenever fewer than 12 are outstanding, those in training included; a step trains the first 4 that end, the rest go on\n" +
			"staleness    at most 2 policy versions between a trajectory's oldest sampled token and the version that trains it; a step adds up to 1\n" +
			"             a group that no later step could train within that: it is dropped and its task sampled anew (stale: drop)\n" +
			"cut          a completion that a token limit cut ends its trajectory, which the rewards score without an answer (rollout.cut: score)\n" +
			"deadlines    trajectory 90 s, completion 600 s, tool call 30 s\n",
		"cut: parse": "rollouts     sync: a step samples its 4 groups with its own policy version, waits for all of them, and trains\n" +
			"cut          a completion that a token limit cut counts as if the model had ended it (rollout.cut: parse)\n" +
			"deadlines    trajectory none of its own, completion 600 s, tool call 30 s\n",
		"oversample: 1.5, max_staleness: 1": "rollouts     sync with over-sampling: once an update is done, groups begin until 6 are outstanding; a step trains the first 4 that end, the rest go on\n" +
			"staleness    at most 1 policy versions between a trajectory's oldest sampled token and the version that trains it; a step adds up to 1\n" +
			"             a group that no later step could train within that: the step waits for it (stale: wait)\n" +
			"cut          a completion that a token limit cut ends its trajectory, which the rewards score without an answer (rollout.cut: score)\n" +
			"deadlines    trajectory none of its own, completion 600 s, tool call 30 s\n",
	} {
		j, err := job.Parse("x.yaml", []byte(strings.Replace(text, "%", block, 1)), job.Options{})
		require.NoError(t, err)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err)
		require.Equal(t, want, Describe(j, a))
	}
}
