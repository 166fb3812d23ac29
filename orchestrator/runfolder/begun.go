package runfolder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Steps is how many steps the run in a folder has done, by its store, its last checkpoint or metrics.jsonl, whichever knows most: one of them
// may have lost its end. held is false where the folder holds no run.
func Steps(dir string) (steps int, held bool, err error) {
	path := filepath.Join(dir, store.File)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, false, nil
	}
	db, err := store.OpenReader(path)
	if err != nil {
		return 0, true, err
	}
	recorded, err := db.Steps()
	if err = errors.Join(err, db.Close()); err != nil {
		return 0, true, err
	}
	steps = len(recorded)
	var saved struct {
		Step int `json:"step"`
	}
	data, err := os.ReadFile(filepath.Join(checkpoint.LastOf(dir), checkpoint.StateFile))
	if err == nil {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, true, fmt.Errorf("orchestrator: run folder: %s: %w", checkpoint.LastOf(dir), err)
	}
	logged, err := loggedSteps(dir)
	return max(steps, saved.Step, logged), true, err
}

// loggedSteps counts the lines of metrics.jsonl that are of steps.
func loggedSteps(dir string) (n int, err error) {
	data, err := os.ReadFile(filepath.Join(dir, metricsFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	for line := range bytes.Lines(data) {
		var of struct {
			Eval json.RawMessage `json:"eval"`
		}
		if json.Unmarshal(line, &of) == nil && of.Eval == nil { // the last line may be cut off
			n++
		}
	}
	return n, err
}

// begun refuses a folder that holds a run which did a step, unless it may be overwritten, and one that is a gateway's or whose files of these
// names are somebody else's. held tells that there is a run to clear away.
func (f *Folder) begun() (held bool, err error) {
	steps, held, err := Steps(f.Dir)
	switch {
	case !held:
		return false, f.foreign()
	case store.DiskFull(err): // what the store holds is not known
		return true, err
	}
	if err := f.ofRun(); err != nil {
		return true, err
	}
	if f.Overwrite {
		return held, nil
	}
	what := "a run"
	switch {
	case err != nil:
		what = fmt.Sprintf("a run that cannot be read (%v)", err)
	case steps == 0:
		return true, nil
	case steps == 1:
		what = "a run of 1 step"
	default:
		what = fmt.Sprintf("a run of %d steps", steps)
	}
	return true, job.InputError(fmt.Errorf("%s holds %s already; continue it with --resume, give another folder with --output, or delete the run with --overwrite", f.Dir, what))
}

// ofRun refuses a folder whose store holds what a gateway recorded, or cannot be read and has no job.yaml of a run beside it.
func (f *Folder) ofRun() error {
	of, err := ofGateway(f.Dir)
	switch {
	case of:
		return job.InputError(fmt.Errorf("%s holds what a gateway recorded; give another folder with --output", f.Dir))
	case err == nil:
		return nil
	case store.DiskFull(err):
		return err
	}
	if _, missing := os.Lstat(filepath.Join(f.Dir, JobFile)); missing != nil {
		return job.InputError(fmt.Errorf("%s may hold what a gateway recorded: its %s cannot be read (%v) and has no %s of a run beside it; continue it with --resume if it is a run's, give another folder with --output, or move it away", f.Dir, store.File, err, JobFile))
	}
	return nil
}

// ofGateway tells whether the store in a folder holds what a gateway recorded.
func ofGateway(dir string) (of bool, err error) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Holds(context.Background(), store.Gateway)
}

// CheckGateway keeps a gateway from recording into the store of a run.
func (f *Folder) CheckGateway() error {
	if _, err := os.Lstat(filepath.Join(f.Dir, JobFile)); err == nil {
		return job.InputError(fmt.Errorf("%s is the folder of a run or of a job (it has a %s); give the gateway another one with --output", f.Dir, JobFile))
	}
	return nil
}

// foreign refuses a file in place of the folder, and a folder without a run in it that holds files which a run would write over, such as the
// job.yaml that agentfly init wrote.
func (f *Folder) foreign() error {
	if info, err := os.Stat(f.Dir); err == nil && !info.IsDir() {
		return job.InputError(fmt.Errorf("%s is a file; give a folder with --output", f.Dir))
	}
	for _, name := range []string{JobFile, metricsFile, "summary.json"} {
		if _, err := os.Lstat(filepath.Join(f.Dir, name)); err == nil {
			return job.InputError(fmt.Errorf("%s is no run folder (it has no %s), and its %s would be overwritten; give another folder with --output", f.Dir, store.File, name))
		}
	}
	return nil
}

// removeExported removes what the run was exported to, and the folders that are empty then.
func (f *Folder) removeExported() error {
	for _, path := range f.Exported() {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("orchestrator: run folder: %w", err)
		}
		for dir := filepath.Dir(path); dir != filepath.Clean(f.Dir) && os.Remove(dir) == nil; {
			dir = filepath.Dir(dir)
		}
	}
	return nil
}

// clear removes the files of the run that the folder holds, and no others. The folder is locked: another process may be in its first step.
func (f *Folder) clear(note func(string)) error {
	steps, _, err := Steps(f.Dir)
	if f.unlock == nil {
		return fmt.Errorf("orchestrator: %s holds a run already and cannot be locked, so nothing shows that no process trains there; delete it, or give another folder with --output", f.Dir)
	}
	names := []string{metricsFile, JobFile, "summary.json", NowFile, ResourcesFile, ControlFile, sessionkey.File, "checkpoints", "logs", "vllm.log"}
	older, _ := filepath.Glob(filepath.Join(f.Dir, "job.[0-9]*.yaml")) // the pattern is well formed
	for _, path := range older {
		names = append(names, filepath.Base(path))
	}
	if f.Exported != nil {
		if err := f.removeExported(); err != nil {
			return err
		}
	}
	// the store goes last, and its log before it: as long as it is there the folder holds a run, wherever this ends
	for _, name := range append(names, store.File+"-wal", store.File+"-shm", store.File) {
		if err := os.RemoveAll(filepath.Join(f.Dir, name)); err != nil {
			return fmt.Errorf("orchestrator: run folder: %w", err)
		}
	}
	if f.Overwrite {
		note("the run that " + f.Dir + " held is deleted")
	} else if err == nil && steps == 0 {
		note("the run that " + f.Dir + " held ended before its first step: it is removed, and this one begins")
	}
	return nil
}
