package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/report"
)

const (
	stateFile     = "run.json" // written last into a checkpoint: one that has it is complete
	adapterFolder = "adapter"  // PEFT's files, of a job with model.lora; the weights beside it are merged
	trainerFolder = "trainer"  // apart, because vLLM reads every safetensors file beside the model's
)

// state is what a resumed run continues from, besides weights and optimizer.
type state struct {
	Step    int   `json:"step"`    // steps done
	Version int32 `json:"version"` // policy version: optimizer steps that changed the weights
	report.Totals
	Data         map[string]string     `json:"data"`                     // SHA-256 of the data files
	Dealt        []int                 `json:"dealt,omitempty"`          // tasks that each stratum of the data has dealt; nil: those of Step steps without refills
	SkippedInRow int                   `json:"skipped_in_row,omitempty"` // up to the last step
	Curriculum   *data.CurriculumState `json:"curriculum,omitempty"`
	Files        map[string]string     `json:"files,omitempty"` // CRC-32C of each other file of the checkpoint
}

// add counts a finished step.
func (s *state) add(r report.Step, finished int) {
	s.Step++
	s.Totals.Add(r, finished)
}

// load reads the state of the last complete checkpoint of a run folder and returns the checkpoint's folder; "" when the
// run had saved none yet.
func (s *state) load(dir string) (string, error) {
	last := filepath.Join(dir, "checkpoints", "last")
	data, err := os.ReadFile(filepath.Join(last, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err != nil {
		return "", fmt.Errorf("orchestrator: %s: %w", filepath.Join(last, stateFile), err)
	}
	if last, err = filepath.EvalSymlinks(last); err != nil {
		return "", err
	}
	return last, checkpoint.Verify(last, s.Files)
}

// save writes checkpoints/step-N, all of it or nothing, and then points checkpoints/last to it. Until that moment the
// previous one is the last.
func (t *run) save() error {
	state := t.state
	if !t.started.IsZero() {
		state.Seconds += time.Since(t.started).Seconds()
	}
	name := "step-" + strconv.Itoa(state.Step)
	err := modelfile.ReplaceDir(filepath.Join(t.folder.Dir, "checkpoints", name), func(dir string) error {
		if err := t.policy.SaveHF(dir, modelfile.F32); err != nil {
			return err
		}
		if t.job.Model.LoRA.On() {
			if err := t.policy.SaveAdapter(filepath.Join(dir, adapterFolder), t.baseName()); err != nil {
				return err
			}
		}
		trainer := filepath.Join(dir, trainerFolder)
		if err := os.Mkdir(trainer, 0o755); err != nil {
			return err
		}
		if err := t.trainer.Save(trainer); err != nil {
			return err
		}
		var err error
		if state.Files, err = checkpoint.Checksums(dir); err != nil {
			return err
		}
		return modelfile.WriteJSON(filepath.Join(dir, stateFile), state)
	})
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoint after step %d: %w", state.Step, err)
	}
	if err := checkpoint.PointTo(filepath.Join(t.folder.Dir, "checkpoints", "last"), name); err != nil {
		return fmt.Errorf("orchestrator: checkpoint after step %d: %w", state.Step, err)
	}
	return t.prune(name)
}

// baseName is where PEFT finds the base model: a hub id, or a folder of this machine; "" for a model from scratch.
func (t *run) baseName() string {
	path := t.job.Model.Path
	if local := t.job.Resolve(path); path != "" && exists(local) {
		if absolute, err := filepath.Abs(local); err == nil {
			return absolute
		}
	}
	return path
}

// prune removes all but the newest checkpoints.
func (t *run) prune(newest string) error {
	entries, err := os.ReadDir(filepath.Join(t.folder.Dir, "checkpoints"))
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoints: %w", err)
	}
	var steps []int
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "step-")); err == nil && strings.HasPrefix(e.Name(), "step-") {
			steps = append(steps, n)
		}
	}
	sort.Sort(sort.Reverse(sort.IntSlice(steps)))
	best := t.bestCheckpoint()
	for _, n := range steps[min(len(steps), t.job.Checkpoint.Keep):] {
		if name := "step-" + strconv.Itoa(n); name != newest && name != best {
			if err := os.RemoveAll(filepath.Join(t.folder.Dir, "checkpoints", name)); err != nil {
				return fmt.Errorf("orchestrator: checkpoints: %w", err)
			}
		}
	}
	return nil
}

// elapsed is how many seconds the run has taken since its first rollout, over resumes.
func (t *run) elapsed() float64 { return t.state.Seconds + time.Since(t.started).Seconds() }

func (t *run) summary() report.Summary {
	out := t.state.Summary(t.state.Step, t.job.SFT != nil)
	if t.session != nil {
		out.Job, out.Stopped = t.session.job.Name, t.stoppedBy()
	}
	return out
}

func (t *run) writeSummary() error {
	s := t.summary()
	if err := modelfile.WriteJSON(filepath.Join(t.folder.Dir, "summary.json"), s); err != nil {
		return err
	}
	s.Print(t.say, t.folder.Dir, t.job.Path(), t.bestCheckpoint() != "")
	return nil
}
