package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// A call that could not be read is one of those that the policy asked for: more cannot have failed.
func TestTheLineOfAStepCountsCallsThatCouldNotBeRead(t *testing.T) {
	s := Step{Seconds: Seconds{Step: 3}, Rollouts: &Rollouts{
		Reward: Reward{Mean: 0.5}, Turns: &Turns{}, Trajectories: Trajectories{Finished: 2, Stops: map[string]int{"answer": 1}},
	}}
	s.Rollouts.Turns.add(trajectory.Turn{ParseErrors: 2, Results: []trajectory.ToolResult{{}, {Failed: true}, {Failed: true}}})
	var p Progress
	require.Equal(t, "step   1/2   reward 0.500  answered  1/ 2  calls  3 (2 failed)  sample    0 tok/s  train    0 tok/s   3.0 s  left 3s", p.Line(s, 1, 2, false))
}
