package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// The parts of a step's reward are means of the trajectories that finished, as the reward is: one that its teacher refused had parts already.
func TestPartsOfWhatFailedAreNotCounted(t *testing.T) {
	done := &trajectory.Trajectory{Reward: 1, RewardParts: map[string]float64{"format": 1}}
	refused := &trajectory.Trajectory{Reward: 1, RewardParts: map[string]float64{"format": 1}}
	refused.Fail(trajectory.OriginTeacher, "it is too long")
	b := &schedule.Batch{All: []trajectory.Group{{Trajectories: []*trajectory.Trajectory{done, refused}}}}
	s := Describe(b, []float64{1}, trainer.Metrics{}, Facts{Waited: 1, Whole: 2})
	require.Equal(t, map[string]float64{"format": 1}, s.Rollouts.Reward.Parts)
}
