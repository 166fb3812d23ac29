package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// A call that could not be read is one of those that the policy asked for: more cannot have failed.
func TestTheLineOfAStepCountsCallsThatCouldNotBeRead(t *testing.T) {
	s := Step{Seconds: Seconds{Step: 3}, Rollouts: &Rollouts{
		Reward: Reward{Mean: new(0.5)}, Turns: &Turns{}, Trajectories: Trajectories{Finished: 2, Stops: map[string]int{"answer": 1}},
	}}
	s.Rollouts.Turns.add(trajectory.Turn{ParseErrors: 2, Results: []trajectory.ToolResult{{}, {Failed: true}, {Failed: true}}})
	var p Progress
	require.Equal(t, "step   1/2   reward 0.500  answered  1/ 2  calls  3 (2 failed)  sample    0 tok/s  train    0 tok/s   3.0 s  left 3s", p.Line(s, 1, 2, false))
}

func TestTheLineOfAStep(t *testing.T) {
	rollouts := &Rollouts{
		Reward: Reward{Mean: new(0.25)}, Sampling: Sampling{TokensPerSecond: 1234.4, Wait: 0.5}, Policy: Policy{StalenessMean: 1.25, StalenessMax: 2},
		Trajectories: Trajectories{Finished: 7, Failed: 1, Cut: 2, Stops: map[string]int{"answer": 3}}, Lengths: Lengths{Trained: &Spread{Mean: 30}, Cut: &Spread{Mean: 40}},
	}
	s := Step{Rollouts: rollouts, Tokens: Tokens{TrainPerSecond: 99}, Seconds: Seconds{Step: 2}}
	var p Progress
	require.Equal(t, "step   1/10   reward 0.250  answered  3/ 8  calls  0 (0 failed)  sample 1234 tok/s  train   99 tok/s   2.0 s  left 18s", p.Line(s, 1, 10, false))
	rollouts.Environments = &Environments{}
	rollouts.Trajectories.Stops["terminated"] = 5
	require.Equal(t, "step   1/10   reward 0.250  ended  5/ 8  actions  0 (0 failed)  sample 1234 tok/s  train   99 tok/s   2.0 s  left 18s", new(Progress).Line(s, 1, 10, false), "in an environment")
	rollouts.Environments = nil
	s.Seconds.Step = 4
	require.Equal(t, "step   2/10   reward 0.250  answered  3/ 8  calls  0 (0 failed)  sample 1234 tok/s  train   99 tok/s   4.0 s  stale 1.2 (2)  waited 0.5 s  length 30 (2 cut before: 40)  left 24s", p.Line(s, 2, 10, true), "three seconds a step")
	s.Distill = &Distill{ReverseKL: 0.5}
	require.Equal(t, "step   7/10   reverse KL 0.5000  reward 0.250  sample 1234 tok/s  train   99 tok/s   4.0 s  left 12s", new(Progress).Line(s, 7, 10, true), "a process that began at the seventh")
	s = Step{SFT: &SFT{Loss: 0.125, Epoch: 1.5, Conversations: 8, TokensLearned: 300}, Tokens: Tokens{TrainPerSecond: 99}, Seconds: Seconds{Step: 1}}
	require.Equal(t, "step  10/10   loss 0.1250  epoch 1.50  8 conversations, 300 tokens learned  train   99 tok/s   1.0 s  left 0s", new(Progress).Line(s, 10, 10, false))
}
