package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

func TestSuccess(t *testing.T) {
	right := &trajectory.Trajectory{Reward: 0.3, Turns: []trajectory.Turn{{FinalAnswer: "1", AnsweredThisTurn: true}}}
	wrong := &trajectory.Trajectory{Reward: 0.8, Turns: []trajectory.Turn{{FinalAnswer: "2", AnsweredThisTurn: true}}}
	failed := &trajectory.Trajectory{Reward: 0.8, Err: "gone", Turns: right.Turns}
	q, half := rollouttest.Task("q", "?", "1"), 0.5
	require.True(t, data.Succeeded(q, right, nil))
	require.False(t, data.Succeeded(q, wrong, nil))
	require.False(t, data.Succeeded(q, failed, nil))
	require.False(t, data.Succeeded(q, right, &half))
	require.True(t, data.Succeeded(q, wrong, &half))
	require.False(t, data.Succeeded(q, failed, &half))

	q.Fields = map[string]any{}
	tasks := &data.Tasks{Path: "t.jsonl", Tasks: []trajectory.Task{q}}
	j := evalJob(job.Eval{Samples: 2})
	require.ErrorContains(t, data.CheckEvaluation(j, tasks), `t.jsonl: task "q" has no answer, so pass@k cannot tell a success; set data.success to the reward of one, or map the column`)
	j.Data.Success = &half
	require.NoError(t, data.CheckEvaluation(j, tasks))
	require.NoError(t, data.CheckEvaluation(evalJob(job.Eval{Samples: 1}), tasks))
}
