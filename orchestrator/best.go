package orchestrator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
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

// ranked are the evaluations that are compared: all up to this step but those with the tools switched off. A run that is
// recovered knows later ones already.
func (s *state) ranked() (out []Evaluation) {
	for _, e := range s.Evaluations {
		if e.Name != "tool_off" && e.Step <= s.Step {
			out = append(out, e)
		}
	}
	return out
}

// leader is the index of the best of some evaluations, the first of equals; -1 of none.
func leader(all []Evaluation) int {
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

func (s *state) best() *Best {
	all := s.ranked()
	i := leader(all)
	if i < 0 {
		return nil
	}
	value, _ := all[i].score()
	return &Best{all[i].Name, all[i].Step, value}
}

// stalled tells whether eval.stop_after ends the run now. It depends on the evaluations alone, so that a resumed run decides
// the same.
func (t *run) stalled() bool {
	n := t.job.Eval.StopAfter
	if n == 0 {
		return false
	}
	all, newest := t.state.ranked(), 0
	for _, e := range all {
		if e.Name != "after" {
			newest = max(newest, e.Step)
		}
	}
	all = slices.DeleteFunc(all, func(e Evaluation) bool { // that of the end which this brought about, or of fewer steps
		return e.Name == "after" && e.Step >= newest
	})
	return len(all)-1-leader(all) >= n
}

// stoppedBy says why the run ended before its last step; empty when it did not.
func (t *run) stoppedBy() string {
	if t.state.Step >= t.job.Trainer.Steps || !t.stalled() {
		return ""
	}
	best := t.state.best()
	return fmt.Sprintf("eval.stop_after: %d evaluations in a row were no better than that after step %d", t.job.Eval.StopAfter, best.Step)
}

// bestLink is the checkpoint with the best evaluation.
const bestLink = "best"

// keepBest saves the state and points checkpoints/best to it when the job wants it and the best evaluation so far is of this
// step. A killed run may have stopped after the evaluation, or between the two: then this comes when it goes on.
func (t *run) keepBest() error {
	all := t.state.ranked()
	i := leader(all)
	if !t.job.Checkpoint.Best || i < 0 || all[i].Step != t.state.Step {
		return nil
	}
	folder := "step-" + strconv.Itoa(t.state.Step)
	if t.bestCheckpoint() == folder {
		return nil
	}
	if t.checkpoint("last") != folder { // else it is there, of this step
		if err := t.save(); err != nil {
			return fmt.Errorf("orchestrator: checkpoints/best: %w", err)
		}
	}
	if err := checkpoint.PointTo(filepath.Join(t.folder.Dir, "checkpoints", bestLink), folder); err != nil {
		return fmt.Errorf("orchestrator: checkpoints/best: %w", err)
	}
	return t.prune(folder) // the one that was the best may go
}

// bestCheckpoint is the folder that checkpoints/best points to; "" for none.
func (t *run) bestCheckpoint() string { return t.checkpoint(bestLink) }

// checkpoint is the folder that a link in checkpoints points to; "" for none.
func (t *run) checkpoint(link string) string {
	name, err := os.Readlink(filepath.Join(t.folder.Dir, "checkpoints", link))
	if err != nil {
		return ""
	}
	return name
}

// sayBest tells at the end of a run what its evaluations say of it.
func (t *run) sayBest(s Summary) {
	if s.Stopped != "" {
		t.say("stopped early: %s", s.Stopped)
	}
	if s.Best != nil && t.bestCheckpoint() != "" {
		t.say("best: %.3f after step %d (evaluation %s), kept in %s", s.Best.Score, s.Best.Step, s.Best.Name, filepath.Join(t.folder.Dir, "checkpoints", bestLink))
	}
}
