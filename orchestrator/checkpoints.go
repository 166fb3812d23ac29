package orchestrator

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
)

// checkpoints writes those of a run: weights, adapter, optimizer and state.
type checkpoints struct {
	folder  checkpoint.Folder
	job     *job.Job
	policy  *policy.Policy
	trainer learner
}

// save writes a checkpoint of the weights, the optimizer and the state.
func (c checkpoints) save(state checkpoint.State) error {
	return c.folder.Save(state, func(dir string) error {
		if err := c.policy.WriteHF(dir, modelfile.F32); err != nil {
			return err
		}
		if c.job.Model.LoRA.On() {
			if err := c.policy.SaveAdapter(filepath.Join(dir, checkpoint.AdapterFolder), baseName(c.job)); err != nil {
				return err
			}
		}
		trainer := filepath.Join(dir, checkpoint.TrainerFolder)
		if err := os.Mkdir(trainer, 0o755); err != nil {
			return err
		}
		return c.trainer.Save(trainer)
	})
}

// keepBest saves the state and points checkpoints/best to it when the job wants it and the best evaluation so far is of this
// step. A killed run may have stopped after the evaluation, or between the two: then this comes when it goes on.
func (c checkpoints) keepBest(state checkpoint.State) error {
	best := state.Evaluations.Best(state.Step)
	if !c.job.Checkpoint.Best || best == nil || best.Step != state.Step || c.folder.Target(checkpoint.Best) == checkpoint.Name(best.Step) {
		return nil
	}
	if c.folder.Target(checkpoint.Last) != checkpoint.Name(best.Step) { // else it is there, of this step
		if err := c.save(state); err != nil {
			return fmt.Errorf("orchestrator: checkpoints/best: %w", err)
		}
	}
	return c.folder.PointToBest(best.Step)
}

// baseName is where PEFT finds the base model: a hub id, or a folder of this machine; "" for a model from scratch.
func baseName(j *job.Job) string {
	path := j.Model.Path
	if path == "" {
		return ""
	}
	local := j.Resolve(path)
	if _, err := os.Stat(local); err != nil {
		return path
	}
	if absolute, err := filepath.Abs(local); err == nil {
		return absolute
	}
	return path
}
