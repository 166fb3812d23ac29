package data

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

func TestSuccess(t *testing.T) {
	right := &trajectory.Trajectory{Reward: 0.3, Turns: []trajectory.Turn{{FinalAnswer: "1", AnsweredThisTurn: true}}}
	wrong := &trajectory.Trajectory{Reward: 0.8, Turns: []trajectory.Turn{{FinalAnswer: "2", AnsweredThisTurn: true}}}
	failed := &trajectory.Trajectory{Reward: 0.8, Err: "gone", Turns: right.Turns}
	q, half := rollouttest.Task("q", "?", "1"), 0.5
	require.True(t, Succeeded(q, right, nil))
	require.False(t, Succeeded(q, wrong, nil))
	require.False(t, Succeeded(q, failed, nil))
	require.False(t, Succeeded(q, right, &half))
	require.True(t, Succeeded(q, wrong, &half))
	require.False(t, Succeeded(q, failed, &half))

	q.Fields["answer"] = []any{"one", "1", nil}
	require.True(t, Succeeded(q, right, nil), "one of several right answers")
	require.False(t, Succeeded(q, wrong, nil))
	q.Fields = map[string]any{}
	tasks := &Tasks{Path: "t.jsonl", Tasks: []trajectory.Task{q}}
	j := &job.Job{Eval: job.Eval{Samples: 2}}
	require.ErrorContains(t, CheckEvaluation(j, tasks), `t.jsonl: task "q" has no answer, so pass@k cannot tell a success; set data.success to the reward of one, or map the column`)
	j.Data.Success = &half
	require.NoError(t, CheckEvaluation(j, tasks))
	require.NoError(t, CheckEvaluation(&job.Job{Eval: job.Eval{Samples: 1}}, tasks))
}

// An environment that says that its goal is reached is believed, whatever the task's field answer says. What failed answered nothing.
func TestAnsweredWithAnEnvironment(t *testing.T) {
	acts := func(solved bool, answer string) *trajectory.Trajectory {
		return &trajectory.Trajectory{Turns: []trajectory.Turn{{
			Results: []trajectory.ToolResult{{Outcome: &trajectory.Outcome{Success: solved}}}, FinalAnswer: answer, AnsweredThisTurn: answer != "",
		}}}
	}
	q, none := rollouttest.Task("q", "?", "1"), trajectory.Task{ID: "n"}
	require.True(t, Answered(q, acts(true, "")), "the goal is reached")
	require.True(t, Answered(q, acts(true, "2")))
	require.True(t, Answered(q, acts(false, "1")))
	require.False(t, Answered(q, acts(false, "2")))
	require.False(t, Answered(q, acts(false, "")))
	require.True(t, Answered(none, acts(true, "")))
	require.False(t, Answered(none, acts(false, "1")))
	for _, task := range []trajectory.Task{q, none} {
		tr := acts(true, "1")
		tr.Fail(trajectory.OriginReward, "gone")
		require.False(t, Answered(task, tr))
	}
}
