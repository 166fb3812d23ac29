package report

import (
	"fmt"
	"slices"
	"strings"
)

// Best is the best evaluation of a run.
type Best struct {
	Name  string  `json:"name"`
	Step  int     `json:"step"`
	Score float64 `json:"score"` // mean reward; in supervised fine-tuning the loss, in distillation the reverse KL, where less is better
}

// score of an evaluation, and how much better it is than others as a number that grows.
func (e Evaluation) score() (value, better float64) {
	switch {
	case e.Loss != nil:
		return *e.Loss, -*e.Loss
	case e.ReverseKL != nil:
		return *e.ReverseKL, -*e.ReverseKL
	}
	return e.Reward, e.Reward
}

// Value is the score of an evaluation, as Best compares it.
func (e Evaluation) Value() float64 {
	value, _ := e.score()
	return value
}

// Evaluations are those of a run, in the order of steps. A run that ended and went on has an "after" of each end.
type Evaluations []Evaluation

// Has tells whether the evaluation of that name was done at that step; "before" is done once.
func (all Evaluations) Has(name string, step int) bool {
	return slices.ContainsFunc(all, func(e Evaluation) bool { return e.Name == name && (e.Step == step || name == "before") })
}

// Ended tells whether the trajectories of a phase and a step are those of an evaluation that was done: one that goes on or was cut off leaves some
// too.
func (all Evaluations) Ended(phase string, step int) bool {
	name, held := strings.CutPrefix(phase, "eval-")
	return held && slices.ContainsFunc(all, func(e Evaluation) bool { return e.Step == step && e.Name == name })
}

// Put puts a result behind those of the same step, or in the place of an earlier one of its name and step.
func (all *Evaluations) Put(e Evaluation) {
	others := slices.DeleteFunc(*all, func(old Evaluation) bool { return old.Name == e.Name && old.Step == e.Step })
	at := slices.IndexFunc(others, func(later Evaluation) bool { return later.Step > e.Step })
	if at < 0 {
		at = len(others)
	}
	*all = slices.Insert(others, at, e)
}

// UpTo are the evaluations up to a step.
func (all Evaluations) UpTo(step int) (out Evaluations) {
	for _, e := range all {
		if e.Step <= step {
			out = append(out, e)
		}
	}
	return out
}

// ranked are the evaluations that are compared: all up to this step but those with the tools switched off. A run that is
// recovered knows later ones already.
func (all Evaluations) ranked(step int) Evaluations {
	return slices.DeleteFunc(all.UpTo(step), func(e Evaluation) bool { return e.Name == "tool_off" })
}

// leader is the index of the best of some evaluations, the first of equals; -1 of none.
func (all Evaluations) leader() int {
	best := -1
	for i, e := range all {
		if best < 0 {
			best = 0
			continue
		}
		_, now := e.score()
		if _, before := all[best].score(); now > before {
			best = i
		}
	}
	return best
}

// Best is the best of the evaluations up to a step but those with the tools switched off; nil of none.
func (all Evaluations) Best(step int) *Best {
	all = all.ranked(step)
	i := all.leader()
	if i < 0 {
		return nil
	}
	value, _ := all[i].score()
	return &Best{all[i].Name, all[i].Step, value}
}

// Stalled tells whether the last n evaluations up to a step were no better than one before them; with n 0 they never are. It
// depends on the evaluations alone, so that a resumed run decides the same.
func (all Evaluations) Stalled(step, n int) bool {
	if n == 0 {
		return false
	}
	all = all.ranked(step)
	newest := 0
	for _, e := range all {
		if e.Name != "after" {
			newest = max(newest, e.Step)
		}
	}
	all = slices.DeleteFunc(all, func(e Evaluation) bool { // that of the end which this brought about, or of fewer steps
		return e.Name == "after" && e.Step >= newest
	})
	return len(all)-1-all.leader() >= n
}

// StoppedBy says why eval.stop_after: n ends a run at a step; empty where it does not.
func (all Evaluations) StoppedBy(step, n int) string {
	if !all.Stalled(step, n) {
		return ""
	}
	return fmt.Sprintf("eval.stop_after: %d evaluations in a row were no better than that after step %d", n, all.Best(step).Step)
}
