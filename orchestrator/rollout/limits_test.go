package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/trajectory"
)

func TestTooManyBrokenCallsEndAStep(t *testing.T) {
	broken := trajectory.Turn{Results: []trajectory.ToolResult{{Failed: true, Cause: trajectory.CauseBroken, Observation: "Error: slow took longer than 1s"}, {Failed: true}, {}, {}}}
	groups := []trajectory.Group{{Trajectories: []*trajectory.Trajectory{
		{ID: "a", Err: "x", ErrOrigin: trajectory.OriginEngine},
		{ID: "b", Err: "x", ErrOrigin: trajectory.OriginEngine, Turns: []trajectory.Turn{broken}},
		{ID: "c", Err: "x", ErrOrigin: trajectory.OriginRender},
		{ID: "d", Turns: []trajectory.Turn{broken, broken}},
		{ID: "e"},
		{ID: "f", Err: "stopped", ErrOrigin: trajectory.OriginEngine, StopReason: trajectory.StopCancelled},
	}}}
	limits := job.Rollout{MaxFailed: 1, MaxFailedTool: 0.25}
	require.NoError(t, rollout.TooManyFailed(limits, "step 3", groups), "3 of 12 is not more than a quarter")
	limits.MaxFailedTool = 0.2
	require.EqualError(t, rollout.TooManyFailed(limits, "step 3", groups), "orchestrator: step 3: 3 of 12 tool calls broke, more than rollout.max_failed_tool (0.2); the first: b: Error: slow took longer than 1s")
	limits.MaxFailedTool = 1
	require.NoError(t, rollout.TooManyFailed(limits, "step 3", groups))
}
