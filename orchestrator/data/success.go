package data

import (
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// CheckEvaluation refuses what cannot be evaluated as the job says.
func CheckEvaluation(j *job.Job, tasks *Tasks) error {
	if len(j.Eval.PassAt()) == 0 {
		return nil
	}
	return needAnswers(j, tasks, "pass@k")
}

// needAnswers refuses tasks of which nobody could tell whether a trajectory succeeded.
func needAnswers(j *job.Job, tasks *Tasks, who string) error {
	if j.Data.Success != nil || j.Environment != nil { // which says when its goal is reached
		return nil
	}
	for _, t := range tasks.Tasks {
		if t.Fields["answer"] == nil {
			return fmt.Errorf("%s: task %q has no answer, so %s cannot tell a success; set data.success to the reward of one, or map the column", tasks.Path, t.ID, who)
		}
	}
	return nil
}

// Answered tells whether the final answer equals the task's, or the environment's goal is reached. A trajectory that failed has answered nothing.
func Answered(task trajectory.Task, t *trajectory.Trajectory) bool {
	if t.Failed() {
		return false
	}
	return solved(t) || equal(task, t)
}

// equal tells whether the final answer equals the task's, or one of several right ones.
func equal(task trajectory.Task, t *trajectory.Trajectory) bool {
	answer, turn := t.FinalAnswer()
	right, several := task.Fields["answer"].([]any)
	if !several {
		right = []any{task.Fields["answer"]}
	}
	return turn >= 0 && slices.ContainsFunc(right, func(want any) bool { return want != nil && rewards.Equal(answer, fmt.Sprint(want)) })
}

// solved tells whether the environment said that the goal is reached.
func solved(t *trajectory.Trajectory) bool {
	o := t.LastOutcome()
	return o != nil && o.Success
}

// Succeeded tells whether a trajectory has the reward of a success, or without one the right answer. Failed ones have not.
func Succeeded(task trajectory.Task, t *trajectory.Trajectory, reward *float64) bool {
	switch {
	case t.Failed():
		return false
	case reward != nil:
		return t.Return() >= *reward
	}
	return Answered(task, t)
}
