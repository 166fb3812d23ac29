package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/report"
)

// State is what a resumed run continues from, besides weights and optimizer.
type State struct {
	Step    int   `json:"step"`    // steps done
	Version int32 `json:"version"` // policy version: optimizer steps that changed the weights
	report.Totals
	Data         map[string]string     `json:"data"`                     // SHA-256 of the data files
	Dealt        []int                 `json:"dealt,omitempty"`          // tasks that each stratum of the data has dealt; nil: those of Step steps without refills
	SkippedInRow int                   `json:"skipped_in_row,omitempty"` // up to the last step
	Curriculum   *data.CurriculumState `json:"curriculum,omitempty"`
	Files        map[string]string     `json:"files,omitempty"` // CRC-32C of each other file of the checkpoint
}

// Add counts a finished step.
func (s *State) Add(r report.Step, finished int) {
	s.Step++
	s.Totals.Add(r, finished)
}

// ErrGone says that the last checkpoint of a run was saved and is gone.
var ErrGone = errors.New("is gone")

// PutBack gives the last checkpoint of a run folder its place back, where a kill left it moved aside. The run must be nobody else's.
func PutBack(dir string) error {
	if err := modelfile.PutBack(target(LastOf(dir))); err != nil {
		return fmt.Errorf("orchestrator: checkpoint: %w", err)
	}
	return nil
}

// Load reads the state of the last complete checkpoint of a run folder and returns the checkpoint's folder; "" when the
// run had saved none yet. One that was saved and is gone is ErrGone: without it the run would begin again.
func (s *State) Load(dir string) (string, error) {
	last := LastOf(dir)
	if _, err := os.Lstat(last); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	data, err := os.ReadFile(filepath.Join(last, StateFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", gone(last)
	}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err != nil {
		return "", fmt.Errorf("orchestrator: %s: %w", filepath.Join(last, StateFile), err)
	}
	if last, err = filepath.EvalSymlinks(last); err != nil {
		return "", err
	}
	return last, Verify(last, s.Files)
}

// gone says what the last checkpoint lacks, all of it or its state, and what to do.
func gone(last string) error {
	path := target(last)
	if _, err := os.Stat(path); err == nil {
		path = filepath.Join(path, StateFile)
	}
	return fmt.Errorf("orchestrator: checkpoint: %s %w: %s", path, ErrGone, remedy(filepath.Dir(last)))
}

// target is the path that a link leads to, whether or not anything is there; that of a folder is its own.
func target(link string) string {
	name, err := os.Readlink(link)
	switch {
	case err != nil:
		return link
	case filepath.IsAbs(name):
		return name
	default:
		return filepath.Join(filepath.Dir(link), name)
	}
}
