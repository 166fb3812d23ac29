package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

func TestSuccess(t *testing.T) {
	right := &trajectory.Trajectory{Reward: 0.3, Turns: []trajectory.Turn{{FinalAnswer: "1", AnsweredThisTurn: true}}}
	wrong := &trajectory.Trajectory{Reward: 0.8, Turns: []trajectory.Turn{{FinalAnswer: "2", AnsweredThisTurn: true}}}
	failed := &trajectory.Trajectory{Reward: 0.8, Err: "gone", Turns: right.Turns}
	q, half := task("q", "?", "1"), 0.5
	require.True(t, succeeded(q, right, nil))
	require.False(t, succeeded(q, wrong, nil))
	require.False(t, succeeded(q, failed, nil))
	require.False(t, succeeded(q, right, &half))
	require.True(t, succeeded(q, wrong, &half))
	require.False(t, succeeded(q, failed, &half))

	q.Fields = map[string]any{}
	data := &Tasks{Path: "t.jsonl", Tasks: []trajectory.Task{q}}
	j := evalJob(job.Eval{Samples: 2})
	require.ErrorContains(t, checkEvaluation(j, data), `t.jsonl: task "q" has no answer, so pass@k cannot tell a success; set data.success to the reward of one, or map the column`)
	j.Data.Success = &half
	require.NoError(t, checkEvaluation(j, data))
	require.NoError(t, checkEvaluation(evalJob(job.Eval{Samples: 1}), data))
}
