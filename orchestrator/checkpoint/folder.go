package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Names in a checkpoint's folder.
const (
	StateFile     = "run.json" // written last: a checkpoint that has it is complete
	AdapterFolder = "adapter"  // PEFT's files, of a job with model.lora; the weights beside it are merged
	TrainerFolder = "trainer"  // apart, because vLLM reads every safetensors file beside the model's
)

// Links in the folder of a run's checkpoints.
const (
	Last = "last" // the newest
	Best = "best" // that of the best evaluation
)

// Folder is the folder of a run's checkpoints, of which the newest Keep and the best one stay.
type Folder struct {
	Dir  string
	Keep int
}

// FolderOf is the path of the folder of a run's checkpoints.
func FolderOf(run string) string { return filepath.Join(run, "checkpoints") }

// LastOf is the path of a run's last checkpoint.
func LastOf(run string) string { return filepath.Join(FolderOf(run), Last) }

// BestOf is the path of the checkpoint of a run's best evaluation.
func BestOf(run string) string { return filepath.Join(FolderOf(run), Best) }

// Name of the checkpoint after a step.
func Name(step int) string { return "step-" + strconv.Itoa(step) }

// Save writes the checkpoint of a state, all of it or nothing, and then points last to it. Until that moment the previous one is the last.
// write writes weights and optimizer into a folder.
func (f Folder) Save(state State, write func(dir string) error) error {
	name := Name(state.Step)
	err := modelfile.ReplaceDir(filepath.Join(f.Dir, name), func(dir string) error {
		if err := write(dir); err != nil {
			return err
		}
		var err error
		if state.Files, err = Checksums(dir); err != nil {
			return err
		}
		return modelfile.WriteJSON(filepath.Join(dir, StateFile), state)
	})
	if err == nil {
		err = pointTo(filepath.Join(f.Dir, Last), name)
	}
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoint after step %d: %w", state.Step, f.explain(err))
	}
	return f.prune(name)
}

// PointToBest points best to the checkpoint of a step. The one that was the best may go.
func (f Folder) PointToBest(step int) error {
	if err := pointTo(filepath.Join(f.Dir, Best), Name(step)); err != nil {
		return fmt.Errorf("orchestrator: checkpoints/best: %w", f.explain(err))
	}
	return f.prune(Name(step))
}

// explain says what to do about a full disk, without the path in a temporary folder that is gone.
func (f Folder) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%s: %w%s", f.Dir, syscall.ENOSPC, store.FreeSpace)
	}
	return err
}

// Target is the checkpoint that a link points to; "" for none.
func (f Folder) Target(link string) string {
	name, err := os.Readlink(filepath.Join(f.Dir, link))
	if err != nil {
		return ""
	}
	return name
}

// prune removes all but the newest checkpoints.
func (f Folder) prune(newest string) error {
	entries, err := os.ReadDir(f.Dir)
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
	best := f.Target(Best)
	for _, n := range steps[min(len(steps), f.Keep):] {
		if name := "step-" + strconv.Itoa(n); name != newest && name != best {
			if err := os.RemoveAll(filepath.Join(f.Dir, name)); err != nil {
				return fmt.Errorf("orchestrator: checkpoints: %w", err)
			}
		}
	}
	return nil
}

// pointTo makes link a symbolic link to name beside it, in one step.
func pointTo(link, name string) error {
	if err := os.RemoveAll(link + ".new"); err != nil {
		return err
	}
	if err := os.Symlink(name, link+".new"); err != nil {
		return err
	}
	if err := os.Rename(link+".new", link); err != nil {
		return err
	}
	return modelfile.SyncDir(filepath.Dir(link))
}

// RemoveUnfinished removes the checkpoints in a folder that were being written when their process was killed. What was moved aside for one comes
// back where nothing is in its place.
func RemoveUnfinished(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoints: %w", err)
	}
	for _, e := range entries {
		hidden := strings.TrimLeft(e.Name(), ".") // as modelfile.ReplaceDir names them; two dots: an older program's, within another one
		if hidden == e.Name() || !strings.HasPrefix(hidden, "step-") {
			continue
		}
		name, _, _ := strings.Cut(hidden, ".")
		switch {
		case strings.HasSuffix(hidden, ".tmp.old"):
			if _, err := os.Stat(filepath.Join(folder, e.Name(), StateFile)); err != nil { // nothing that a run could go on from
				continue
			}
			if err := modelfile.PutBack(filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("orchestrator: checkpoints: %w", err)
			}
			if _, err := os.Stat(filepath.Join(folder, name, StateFile)); err != nil { // incomplete by another hand
				continue
			}
		case !strings.HasSuffix(hidden, ".tmp"):
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("orchestrator: checkpoints: %w", err)
		}
	}
	return nil
}
