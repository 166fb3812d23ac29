package orchestrator

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
)

// checkpoints is the folder of the run's checkpoints.
func (t *run) checkpoints() checkpoint.Folder {
	return checkpoint.Folder{Dir: t.folder.Checkpoints(), Keep: t.job.Checkpoint.Keep}
}

// save writes a checkpoint of the weights, the optimizer and the state.
func (t *run) save() error {
	state := t.state
	if !t.started.IsZero() {
		state.Seconds += time.Since(t.started).Seconds()
	}
	return t.checkpoints().Save(state, func(dir string) error {
		if err := t.policy.SaveHF(dir, modelfile.F32); err != nil {
			return err
		}
		if t.job.Model.LoRA.On() {
			if err := t.policy.SaveAdapter(filepath.Join(dir, checkpoint.AdapterFolder), baseName(t.job)); err != nil {
				return err
			}
		}
		trainer := filepath.Join(dir, checkpoint.TrainerFolder)
		if err := os.Mkdir(trainer, 0o755); err != nil {
			return err
		}
		return t.trainer.Save(trainer)
	})
}

// baseName is where PEFT finds the base model: a hub id, or a folder of this machine; "" for a model from scratch.
func baseName(j *job.Job) string {
	path := j.Model.Path
	if local := j.Resolve(path); path != "" && exists(local) {
		if absolute, err := filepath.Abs(local); err == nil {
			return absolute
		}
	}
	return path
}

// keepBest saves the state and points checkpoints/best to it when the job wants it and the best evaluation so far is of this
// step. A killed run may have stopped after the evaluation, or between the two: then this comes when it goes on.
func (t *run) keepBest() error {
	best, all := t.state.Evaluations.Best(t.state.Step), t.checkpoints()
	if !t.job.Checkpoint.Best || best == nil || best.Step != t.state.Step || all.Target(checkpoint.Best) == checkpoint.Name(best.Step) {
		return nil
	}
	if all.Target(checkpoint.Last) != checkpoint.Name(best.Step) { // else it is there, of this step
		if err := t.save(); err != nil {
			return fmt.Errorf("orchestrator: checkpoints/best: %w", err)
		}
	}
	return all.PointToBest(best.Step)
}

// stalled tells whether eval.stop_after ends the run now.
func (t *run) stalled() bool { return t.state.Evaluations.Stalled(t.state.Step, t.job.Eval.StopAfter) }

// stoppedBy says why the run ended before its last step; empty when it did not.
func (t *run) stoppedBy() string {
	if t.state.Step >= t.job.Trainer.Steps {
		return ""
	}
	return t.state.Evaluations.StoppedBy(t.state.Step, t.job.Eval.StopAfter)
}

// elapsed is how many seconds the run has taken since its first rollout, over resumes.
func (t *run) elapsed() float64 { return t.state.Seconds + time.Since(t.started).Seconds() }

func (t *run) summary() report.Summary {
	out := t.state.Summary(t.state.Step, t.job.SFT != nil)
	out.Job, out.Stopped = t.job.Name, t.stoppedBy()
	return out
}

func (t *run) writeSummary() error {
	s := t.summary()
	if err := modelfile.WriteJSON(filepath.Join(t.folder.Dir, "summary.json"), s); err != nil {
		return err
	}
	s.Print(t.say, t.folder.Dir, t.job.Path(), t.checkpoints().Target(checkpoint.Best) != "")
	return nil
}
