package report

import (
	"encoding/json"
	"fmt"
	"slices"

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
	Reward   float64            `json:"reward" unit:"reward" doc:"mean reward of the trajectories that finished; left out where the job has no rewards"`
	Unscored bool               `json:"unscored,omitempty" doc:"true where the job has no rewards; left out elsewhere"`
	Accuracy float64            `json:"accuracy" unit:"share" doc:"share of them whose final answer equals the task's field answer, however it was found, or whose environment says that its goal is reached"`
	Pass     map[string]float64 `json:"pass,omitempty" unit:"share" doc:"by k: pass@k, of successes as data.success says, over the tasks of which k trajectories finished; left out where there is none"`
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

	By       string   `json:"by,omitempty" doc:"the field whose values the table shows; left out where there is one value"`
	failures []string // what failed in it, by cause; for people, and not recorded

	acts, answerless bool // its trajectories act in an environment; no task has an answer. For people too

	Sources map[string]Score `json:"sources,omitempty" doc:"the table: by value of the field, the keys tasks, reward, accuracy, pass and failed of its tasks; without reward and accuracy where none of their trajectories finished, and without reward where the job has none"`
}

// Score is one line of the table of an evaluation.
type Score struct {
	Tasks    int                `json:"tasks"`
	Reward   *float64           `json:"reward,omitempty"`   // nil: none of its trajectories has one
	Accuracy *float64           `json:"accuracy,omitempty"` // nil: none finished
	Pass     map[string]float64 `json:"pass,omitempty"`
	Failed   int                `json:"failed"` // trajectories
}

// MarshalJSON implements json.Marshaler: a reward that there is not is left out.
func (e Evaluation) MarshalJSON() ([]byte, error) {
	type plain Evaluation
	if !e.Unscored {
		return json.Marshal(plain(e))
	}
	return json.Marshal(struct {
		plain
		Reward *float64 `json:"reward,omitempty"`
	}{plain: plain(e)})
}

// reward is that of the evaluation; nil: it has none.
func (e Evaluation) reward() *float64 {
	if e.Unscored {
		return nil
	}
	return &e.Reward
}

func (e Evaluation) String() string {
	if e.Loss != nil {
		return fmt.Sprintf("%-12s loss %.4f on %d conversations, %.0f s", e.Name, *e.Loss, e.Tasks, e.Seconds)
	}
	if e.ReverseKL != nil {
		return fmt.Sprintf("%-12s reverse KL %.4f nats a token, reward %s of %d tasks, %.0f s", e.Name, *e.ReverseKL, shown("%.3f", e.reward()), e.Tasks, e.Seconds)
	}
	right, calls := fmt.Sprintf(", right answers %.0f%%", 100*e.Accuracy), "tool calls"
	switch {
	case e.acts:
		right, calls = fmt.Sprintf(", solved %.0f%%", 100*e.Accuracy), "actions"
	case e.answerless:
		right = ""
	}
	return fmt.Sprintf("%-12s reward %s%s of %d tasks, %d %s (%d failed), %.0f s", e.Name, shown("%.3f", e.reward()), right, e.Tasks, e.Calls, calls, e.FailedCalls, e.Seconds)
}

// Scoring says how the trajectories of an evaluation are scored.
type Scoring struct {
	K       []int    // of pass@k
	Success *float64 // the reward of a success; nil: the right answer is one
	By      string   // the field whose values the table shows
	Acts    bool     // the trajectories act in an environment, which says what is solved
}

// Score fills in what the trajectories of the tasks say.
func (e *Evaluation) Score(groups []trajectory.Group, s Scoring) {
	all := s.of(groups)
	e.Tasks, e.Pass, e.Failed = all.Tasks, all.Pass, all.Failed
	if all.Accuracy != nil {
		e.Accuracy, e.Unscored = *all.Accuracy, all.Reward == nil
	}
	if all.Reward != nil {
		e.Reward = *all.Reward
	}
	e.By, e.Sources = s.table(groups)
	e.Parts, e.Errors = map[string]float64{}, map[string]int{}
	e.count(groups)
	e.failures = FailureLines(groups)
	e.acts = s.Acts
	e.answerless = !slices.ContainsFunc(groups, func(g trajectory.Group) bool { return g.Task.Fields["answer"] != nil })
}

// Failures say what failed in an evaluation that was done just now, by cause.
func (e Evaluation) Failures() []string { return e.failures }

// count sums up what is not scored. Parts are means as the reward is: over tasks, of the trajectories that finished.
func (e *Evaluation) count(groups []trajectory.Group) {
	tasks := 0.0
	for _, g := range groups {
		finished := 0.0
		for _, t := range g.Trajectories {
			if !t.Failed() {
				finished++
			}
		}
		if finished > 0 {
			tasks++
		}
		for _, t := range g.Trajectories {
			if !t.Failed() {
				for part, v := range t.RewardParts {
					e.Parts[part] += v / finished
				}
			}
			for _, turn := range t.Turns {
				e.Calls += len(turn.Results)
				if turn.Cut() {
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
		e.Parts[part] /= tasks
	}
}

// of is the mean over tasks of the mean over their trajectories that finished. A failure of what carries the run says nothing of the policy, so
// a trajectory that failed is left out and counted, and so is a task of which all failed; pass@k is of tasks of which k or more finished.
func (c Scoring) of(groups []trajectory.Group) Score {
	s := Score{Tasks: len(groups)}
	var reward, accuracy []float64 // of the tasks
	pass := map[int][]float64{}
	for _, g := range groups {
		var own []float64 // rewards of the task's trajectories
		n, right, successes := 0, 0, 0
		for _, t := range g.Trajectories {
			if t.Failed() {
				s.Failed++
				continue
			}
			n++
			if t.Scored() {
				own = append(own, t.Return())
			}
			if data.Answered(g.Task, t) {
				right++
			}
			if data.Succeeded(g.Task, t, c.Success) {
				successes++
			}
		}
		if n == 0 {
			continue
		}
		if len(own) > 0 {
			reward = append(reward, mean(own))
		}
		accuracy = append(accuracy, float64(right)/float64(n))
		for _, k := range c.K {
			if n >= k {
				pass[k] = append(pass[k], passAt(n, successes, k))
			}
		}
	}
	s.Reward, s.Accuracy = meanOf(reward), meanOf(accuracy)
	if len(c.K) > 0 {
		s.Pass = map[string]float64{}
	}
	for k, p := range pass {
		s.Pass[fmt.Sprint(k)] = mean(p)
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
