package orchestrator

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
)

// stalled tells whether eval.stop_after ends the run now.
func (t *run) stalled() bool { return t.state.Evaluations.Stalled(t.state.Step, t.job.Eval.StopAfter) }

// stoppedBy says why the run ended before its last step; empty when it did not.
func (t *run) stoppedBy() string {
	if t.state.Step >= t.job.Trainer.Steps {
		return ""
	}
	return t.state.Evaluations.StoppedBy(t.state.Step, t.job.Eval.StopAfter)
}

// bestLink is the checkpoint with the best evaluation.
const bestLink = "best"

// keepBest saves the state and points checkpoints/best to it when the job wants it and the best evaluation so far is of this
// step. A killed run may have stopped after the evaluation, or between the two: then this comes when it goes on.
func (t *run) keepBest() error {
	best := t.state.Evaluations.Best(t.state.Step)
	if !t.job.Checkpoint.Best || best == nil || best.Step != t.state.Step {
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
