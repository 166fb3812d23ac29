package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// Evaluation is the result of sampling held-out tasks once each.
type Evaluation struct {
	Name     string             `json:"name"`
	Step     int                `json:"step"` // optimizer steps before it
	Tasks    int                `json:"tasks"`
	Reward   float64            `json:"reward"`         // mean; a failed trajectory counts 0
	Accuracy float64            `json:"accuracy"`       // share whose final answer equals the task's field answer, however it was found
	Parts    map[string]float64 `json:"parts"`          // mean of each part
	Loss     *float64           `json:"loss,omitempty"` // of held-out conversations, in supervised fine-tuning; then there is no reward
	// ReverseKL estimates the divergence of the policy from the teacher in nats per token, in distillation: the mean of
	// sampling - teacher logprobs over rollout.group_size trajectories of each task, sampled as in training.
	ReverseKL *float64 `json:"reverse_kl,omitempty"`

	Failed  int     `json:"failed"`
	Calls   int     `json:"tool_calls"`
	Seconds float64 `json:"seconds"`
}

func (e Evaluation) String() string {
	if e.Loss != nil {
		return fmt.Sprintf("%-12s loss %.4f on %d conversations, %.0f s", e.Name, *e.Loss, e.Tasks, e.Seconds)
	}
	if e.ReverseKL != nil {
		return fmt.Sprintf("%-12s reverse KL %.4f nats a token, reward %.3f of %d tasks, %.0f s", e.Name, *e.ReverseKL, e.Reward, e.Tasks, e.Seconds)
	}
	return fmt.Sprintf("%-12s reward %.3f, right answers %.0f%% of %d tasks, %d tool calls, %.0f s", e.Name, e.Reward, 100*e.Accuracy, e.Tasks, e.Calls, e.Seconds)
}

// evaluate samples every task once. Its seeds are its own, and nothing of it is trained on.
func evaluate(ctx context.Context, r Rollout, db *store.Store, name string, step int, tasks []trajectory.Task, temperature float64) (Evaluation, error) {
	r.Sampling.Temperature = temperature
	r.Record, r.Past = nil, nil // one that is cut off is done anew
	start := time.Now()
	phase := "eval-" + name
	groups := r.Groups(ctx, phase, step, tasks, 1, func(*trajectory.Trajectory) {})
	e := Evaluation{Name: name, Step: step, Tasks: len(tasks), Parts: map[string]float64{}, Seconds: time.Since(start).Seconds()}
	if err := ctx.Err(); err != nil {
		return e, err
	}
	n := float64(len(tasks))
	for _, g := range groups {
		t := g.Trajectories[0]
		if t.Err != "" {
			e.Failed++
		}
		e.Reward += t.Reward
		for part, v := range t.RewardParts {
			e.Parts[part] += v
		}
		if answer, turn := t.FinalAnswer(); turn >= 0 && rewards.Equal(answer, fmt.Sprint(g.Task.Fields["answer"])) {
			e.Accuracy++
		}
		for _, turn := range t.Turns {
			e.Calls += len(turn.Results)
		}
		if db != nil {
			if err := db.AddTrajectory(ctx, phase, g.Task, t); err != nil {
				return e, err
			}
		}
	}
	e.Reward, e.Accuracy = e.Reward/n, e.Accuracy/n
	for part := range e.Parts {
		e.Parts[part] /= n
	}
	if e.Failed == len(tasks) {
		return e, fmt.Errorf("orchestrator: evaluation %s: every trajectory failed, the first with: %s", name, groups[0].Trajectories[0].Err)
	}
	return e, nil
}
