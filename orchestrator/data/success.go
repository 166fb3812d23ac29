package data

import (
	"fmt"

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
	if j.Data.Success != nil {
		return nil
	}
	for _, t := range tasks.Tasks {
		if t.Fields["answer"] == nil {
			return fmt.Errorf("%s: task %q has no answer, so %s cannot tell a success; set data.success to the reward of one, or map the column", tasks.Path, t.ID, who)
		}
	}
	return nil
}

// Answered tells whether the final answer equals the task's.
func Answered(task trajectory.Task, t *trajectory.Trajectory) bool {
	answer, turn := t.FinalAnswer()
	return turn >= 0 && rewards.Equal(answer, fmt.Sprint(task.Fields["answer"]))
}

// Succeeded tells whether a trajectory has the reward of a success, or without one the right answer. Failed ones have not.
func Succeeded(task trajectory.Task, t *trajectory.Trajectory, reward *float64) bool {
	switch {
	case t.Err != "":
		return false
	case reward != nil:
		return t.Reward >= *reward
	}
	return Answered(task, t)
}
