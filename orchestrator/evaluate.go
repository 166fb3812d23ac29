package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Evaluation is the result of sampling held-out tasks.
type Evaluation struct {
	Name     string             `json:"name"`
	Step     int                `json:"step"` // optimizer steps before it
	Tasks    int                `json:"tasks"`
	Samples  int                `json:"samples,omitempty"` // trajectories of each task; left out: one
	Reward   float64            `json:"reward"`            // mean; a failed trajectory counts 0
	Accuracy float64            `json:"accuracy"`          // share whose final answer equals the task's field answer, however it was found
	Pass     map[string]float64 `json:"pass,omitempty"`    // by k: pass@k, of successes as data.success says
	Parts    map[string]float64 `json:"parts"`             // mean of each part
	Loss     *float64           `json:"loss,omitempty"`    // of held-out conversations, in supervised fine-tuning; then there is no reward
	// ReverseKL estimates the divergence of the policy from the teacher in nats per token, in distillation: the mean of
	// sampling - teacher logprobs over rollout.group_size trajectories of each task, sampled as in training.
	ReverseKL *float64 `json:"reverse_kl,omitempty"`

	Failed      int            `json:"failed"`
	Cut         int            `json:"cut,omitempty"`    // completions that a token limit cut
	Errors      map[string]int `json:"errors,omitempty"` // failed trajectories and broken tool calls by origin
	Calls       int            `json:"tool_calls"`
	FailedCalls int            `json:"tool_calls_failed"` // whose observation is an error: what the policy wrote, or a tool that is slow today
	Seconds     float64        `json:"seconds"`

	By      string           `json:"by,omitempty"`      // the field whose values the table shows; left out where there is one value
	Sources map[string]Score `json:"sources,omitempty"` // the table
}

// Score is one line of the table of an evaluation.
type Score struct {
	Tasks    int                `json:"tasks"`
	Reward   float64            `json:"reward"`
	Accuracy float64            `json:"accuracy"`
	Pass     map[string]float64 `json:"pass,omitempty"`
	Failed   int                `json:"failed"` // trajectories
}

func (e Evaluation) String() string {
	if e.Loss != nil {
		return fmt.Sprintf("%-12s loss %.4f on %d conversations, %.0f s", e.Name, *e.Loss, e.Tasks, e.Seconds)
	}
	if e.ReverseKL != nil {
		return fmt.Sprintf("%-12s reverse KL %.4f nats a token, reward %.3f of %d tasks, %.0f s", e.Name, *e.ReverseKL, e.Reward, e.Tasks, e.Seconds)
	}
	return fmt.Sprintf("%-12s reward %.3f, right answers %.0f%% of %d tasks, %d tool calls (%d failed), %.0f s", e.Name, e.Reward, 100*e.Accuracy, e.Tasks, e.Calls, e.FailedCalls, e.Seconds)
}

// evaluatedAtOnce bounds the memory and the tools' state of an evaluation, whatever it has of tasks and samples.
const evaluatedAtOnce = 10_000

// evaluate samples every task eval.samples times. Its seeds are its own, derived from the evaluation's name, and nothing of
// it is trained on.
func evaluate(ctx context.Context, r rollout.Sampler, db *store.Store, name string, step int, tasks []trajectory.Task, j *job.Job) (Evaluation, error) {
	r.Sampling.Temperature = j.Eval.Temperature
	r.Record, r.Recovered = nil, nil // one that is cut off is done anew
	r.AtOnce = evaluatedAtOnce
	start := time.Now()
	phase := "eval-" + name
	groups, failed := r.Groups(ctx, phase, step, tasks, max(1, j.Eval.Samples), func(t *trajectory.Trajectory) error {
		if err := rollout.Fatal(t); err != nil {
			return err
		}
		if db == nil || ctx.Err() != nil {
			return nil
		}
		return db.AddTrajectory(ctx, phase, tasks[t.Group], t)
	})
	e := Evaluation{Name: name, Step: step, Tasks: len(tasks), Parts: map[string]float64{}, Errors: map[string]int{}, Seconds: time.Since(start).Seconds()}
	if err := ctx.Err(); err != nil {
		return e, err
	}
	if failed != nil {
		return e, failed
	}
	if err := rollout.TooManyFailed(j.Rollout, "evaluation "+name, groups); err != nil { // its score would say more of what failed than of the policy
		return e, err
	}
	if j.Eval.Samples > 1 {
		e.Samples = j.Eval.Samples
	}
	all := scoreOf(groups, j)
	e.Reward, e.Accuracy, e.Pass, e.Failed = all.Reward, all.Accuracy, all.Pass, all.Failed
	e.By, e.Sources = table(groups, j)
	e.count(groups)
	if trajectories := len(tasks) * max(1, j.Eval.Samples); e.Failed == trajectories {
		return e, fmt.Errorf("orchestrator: evaluation %s: every trajectory failed, the first with: %s", name, groups[0].Trajectories[0].Err)
	}
	return e, nil
}

// count sums up what is not scored.
func (e *Evaluation) count(groups []trajectory.Group) {
	n := 0.0
	for _, g := range groups {
		for _, t := range g.Trajectories {
			n++
			for part, v := range t.RewardParts {
				e.Parts[part] += v
			}
			for _, turn := range t.Turns {
				e.Calls += len(turn.Results)
				if turn.FinishReason == trajectory.FinishLength {
					e.Cut++
				}
				for _, r := range turn.Results {
					if r.Failed {
						e.FailedCalls++
					}
				}
			}
			for origin, times := range rollout.ErrorsOf(t) {
				e.Errors[string(origin)] += times
			}
		}
	}
	for part := range e.Parts {
		e.Parts[part] /= n
	}
}

// scoreOf is the mean over tasks. A trajectory that failed has reward 0 and no success.
func scoreOf(groups []trajectory.Group, j *job.Job) Score {
	s := Score{Tasks: len(groups)}
	wanted := j.Eval.PassAt()
	if len(wanted) > 0 {
		s.Pass = map[string]float64{}
	}
	for _, g := range groups {
		reward, right, successes := 0.0, 0, 0
		for _, t := range g.Trajectories {
			reward += t.Reward
			if t.Err != "" {
				s.Failed++
			}
			if data.Answered(g.Task, t) {
				right++
			}
			if data.Succeeded(g.Task, t, j.Data.Success) {
				successes++
			}
		}
		n := len(g.Trajectories)
		s.Reward += reward / float64(n)
		s.Accuracy += float64(right) / float64(n)
		for _, k := range wanted {
			s.Pass[fmt.Sprint(k)] += passAt(n, successes, k)
		}
	}
	tasks := float64(len(groups))
	s.Reward, s.Accuracy = s.Reward/tasks, s.Accuracy/tasks
	for k := range s.Pass {
		s.Pass[k] /= tasks
	}
	return s
}

// passAt is the unbiased estimate of the probability that at least one of k trajectories succeeds, of n trajectories of
// which c succeeded: 1 - C(n-c, k)/C(n, k) as the product 1 - Π_{i=n-c+1..n} (1 - k/i) (Chen et al., arXiv 2107.03374,
// section 2.1). 1 <= k <= n.
func passAt(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}
