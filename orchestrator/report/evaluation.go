package report

import (
	"fmt"

	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/trajectory"
)

// Evaluation is the result of sampling held-out tasks: the key eval of a line of metrics.jsonl, and what the store holds.
type Evaluation struct {
	Name     string             `json:"name" doc:"before, step-N, after, tool_off; eval for the command"`
	Step     int                `json:"step" unit:"steps" doc:"optimizer steps before it"`
	Tasks    int                `json:"tasks" unit:"tasks" doc:"held-out tasks; in supervised fine-tuning conversations"`
	Samples  int                `json:"samples,omitempty" unit:"trajectories" doc:"trajectories of each task; left out: one"`
	Reward   float64            `json:"reward" unit:"reward" doc:"mean reward; a failed trajectory counts 0"`
	Accuracy float64            `json:"accuracy" unit:"share" doc:"share whose final answer equals the task's field answer, however it was found"`
	Pass     map[string]float64 `json:"pass,omitempty" unit:"share" doc:"by k: pass@k, of successes as data.success says"`
	Parts    map[string]float64 `json:"parts" unit:"reward" doc:"mean of each part of the reward"`
	Loss     *float64           `json:"loss,omitempty" unit:"nats" doc:"of held-out conversations, in supervised fine-tuning; then there is no reward"`
	// ReverseKL estimates the divergence of the policy from the teacher.
	ReverseKL *float64 `json:"reverse_kl,omitempty" unit:"nats" doc:"in distillation: mean per token of sampling − teacher logprobs over rollout.group_size trajectories of each task, sampled as in training"`

	Failed      int            `json:"failed" unit:"trajectories" doc:"trajectories that failed"`
	Cut         int            `json:"cut,omitempty" unit:"completions" doc:"completions that a token limit cut"`
	Errors      map[string]int `json:"errors,omitempty" unit:"errors" doc:"failed trajectories and broken tool calls by origin"`
	Calls       int            `json:"tool_calls" unit:"calls" doc:"tool calls"`
	FailedCalls int            `json:"tool_calls_failed" unit:"calls" doc:"those whose observation is an error: what the policy wrote, or a tool that is slow today"`
	Seconds     float64        `json:"seconds" unit:"seconds" doc:"wall clock"`

	By      string           `json:"by,omitempty" doc:"the field whose values the table shows; left out where there is one value"`
	Sources map[string]Score `json:"sources,omitempty" doc:"the table: by value of the field, the keys tasks, reward, accuracy, pass and failed of its tasks"`
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

// Scoring says how the trajectories of an evaluation are scored.
type Scoring struct {
	K       []int    // of pass@k
	Success *float64 // the reward of a success; nil: the right answer is one
	By      string   // the field whose values the table shows
}

// Score fills in what the trajectories of the tasks say.
func (e *Evaluation) Score(groups []trajectory.Group, s Scoring) {
	all := s.of(groups)
	e.Tasks, e.Reward, e.Accuracy, e.Pass, e.Failed = all.Tasks, all.Reward, all.Accuracy, all.Pass, all.Failed
	e.By, e.Sources = s.table(groups)
	e.Parts, e.Errors = map[string]float64{}, map[string]int{}
	e.count(groups)
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

// of is the mean over tasks. A trajectory that failed has reward 0 and no success.
func (c Scoring) of(groups []trajectory.Group) Score {
	s := Score{Tasks: len(groups)}
	if len(c.K) > 0 {
		s.Pass = map[string]float64{}
	}
	for _, g := range groups {
		reward, right, successes := 0.0, 0, 0
		for _, t := range g.Trajectories {
			reward += t.Return()
			if t.Err != "" {
				s.Failed++
			}
			if data.Answered(g.Task, t) {
				right++
			}
			if data.Succeeded(g.Task, t, c.Success) {
				successes++
			}
		}
		n := len(g.Trajectories)
		s.Reward += reward / float64(n)
		s.Accuracy += float64(right) / float64(n)
		for _, k := range c.K {
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
