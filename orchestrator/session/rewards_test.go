package session

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

const withRewards = `version: 1
name: job
model: {path: some/model}
data: {train: train.jsonl}
rewards:
- name: gate
  as: gated
  if: {name: tags, tags: [think, answer]}
  then:
    name: sum
    of: [f1, {name: exact_match, weight: 0.5}]
  else: -0.5
- {name: gate, if: f1, threshold: 0.25, then: 1, weight: 0.1}
`

func rewardOf(t *testing.T, text string) (rewards.Reward, error) {
	j, err := job.Parse("/jobs/job.yaml", []byte(text), job.Options{Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		return nil, err
	}
	again, err := job.Parse("/jobs/job.yaml", j.Source(), job.Options{})
	require.NoError(t, err)
	require.Equal(t, j.Rewards, again.Rewards, "the run's copy says the same")
	res := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, res.Close()) })
	sum, _, err := makeReward(j, rewards.Prebuilt().Builder(t.Context(), res))
	return sum, err
}

func TestNestedRewardsOfAJob(t *testing.T) {
	r, err := rewardOf(t, withRewards)
	require.NoError(t, err)
	score := func(completion, answer string) rewards.Score {
		s, err := r.Score(t.Context(), rewards.Input{Task: rollouttest.Task("a", "question", "Paris France"), Trajectory: &trajectory.Trajectory{
			Turns: []trajectory.Turn{{Completion: completion, FinalAnswer: answer, AnsweredThisTurn: true}},
		}})
		require.NoError(t, err)
		return s
	}
	require.InDelta(t, 1.6, score("<think>a</think><answer>Paris, France</answer>", "Paris, France").Value, 1e-15)
	require.InDelta(t, 2.0/3+0.1, score("<think>a</think><answer>Paris</answer>", "Paris").Value, 1e-15)
	s := score("<answer>Paris</answer>", "Paris")
	require.InDelta(t, -0.4, s.Value, 1e-15)
	require.Equal(t, 0.0, s.Parts["gated.open"])
	require.Equal(t, 1.0, s.Parts["gate.open"])

	for want, change := range map[string][2]string{
		`/jobs/job.yaml:11:10: rewards.0.then.off: gate: then: sum: the parameters cannot be read: unknown field "off"; allowed: of; nearest: of`:                 {"of: [f1,", "off: [f1,"},
		`/jobs/job.yaml:11:40: rewards.0.then.of.1.wait: gate: then: sum: of.1: exact_match: the parameters cannot be read: unknown field "wait"; allowed: field`: {"weight: 0.5", "wait: 0.5"},
		`/jobs/job.yaml:8:7: rewards.0.if: gate: if: tags: the parameter tags: "think" is no name of a tag, or given twice`:                                       {"[think, answer]", "[think, think]"},
		`/jobs/job.yaml:13:3: rewards.1: "gate" is given twice; give one of the two another name with as: NAME`:                                                   {"as: gated", "as: gate"},
		`/jobs/job.yaml:13:3: rewards.1: gate: the parameter threshold must be of type float64, got a string`:                                                     {"threshold: 0.25", "threshold: high"},
	} {
		_, err := rewardOf(t, strings.Replace(withRewards, change[0], change[1], 1))
		require.EqualError(t, err, want)
	}
}
