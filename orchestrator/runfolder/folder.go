package runfolder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Facts of the store: the name of the run, which its weights on servers have, and the folder and the machine that it was given in.
const (
	nameFact   = "name"
	folderFact = "folder"
	placeFact  = "place"
)

// JobFact is the path of the run's job file, to which the paths in the run folder's copy are relative.
const JobFact = "job"

// ModelFact tells the weights that the run began with from others; those of a run of an older program are not known.
const ModelFact = "model"

// AdapterFact does so for the adapter of model.lora.path.
const AdapterFact = "adapter"

// plannedFact is how many steps the run takes. Those of sft.epochs follow from the data, which no reader of the folder has.
const plannedFact = "planned"

// Folder is the folder of a run.
type Folder struct {
	Dir       string
	Overwrite bool            // a run that the folder holds is deleted when this one begins
	Exported  func() []string // paths of what the run that the folder holds was exported to in it, which is deleted with that run; nil: nothing is known
	Name      string          // of the run, which its weights have on servers; Identify finds it
	DB        *store.Store    // nil before Open
	Metrics   *os.File        // metrics.jsonl; nil before Open
	resume    bool
	unlock    func() // nil: it is not locked
}

// New is the folder of a new run, or of one that is resumed. Nothing is made yet.
func New(dir string, resume bool) *Folder { return &Folder{Dir: dir, resume: resume} }

// Identify names the run: a new one with the fresh name, one that goes on as it was. A folder that was copied or moved since is another run,
// because two runs of one name would not notice each other on a server.
func (f *Folder) Identify(fresh string) (err error) {
	f.Name = fresh
	if !f.resume {
		return nil
	}
	db, err := store.Open(filepath.Join(f.Dir, store.File))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	facts := map[string]string{}
	for _, fact := range []string{nameFact, folderFact, placeFact} {
		if facts[fact], err = db.Reader.Fact(fact); err != nil {
			return err
		}
	}
	path, err := f.path()
	if err != nil {
		return err
	}
	here := facts[folderFact] == path
	if place := facts[placeFact]; here && place != "" { // an older program wrote none
		here = place == f.place()
	}
	if name := facts[nameFact]; here && name != "" {
		f.Name = name
	}
	return nil
}

// path is the folder's own, from the root.
func (f *Folder) path() (string, error) {
	path, err := filepath.Abs(f.Dir)
	if err != nil {
		return "", fmt.Errorf("orchestrator: run folder: %w", err)
	}
	return path, nil
}

// place tells the run folder from a copy of it at the same path, such as one that another container mounts there: by the
// machine, and on one machine by the file that is the store.
func (f *Folder) place() string {
	host, _ := os.Hostname() // what a system does not tell does not tell copies apart
	machine, _ := os.ReadFile("/etc/machine-id")
	var file uint64
	if info, err := os.Stat(filepath.Join(f.Dir, store.File)); err == nil {
		file = inode(info)
	}
	return fmt.Sprintf("host %s, machine %s, store.db is inode %d", host, bytes.TrimSpace(machine), file)
}

// Check keeps a new run from writing over an old one that did a step, and a resumed one from going on with what is none.
func (f *Folder) Check() error {
	if !f.resume {
		_, err := f.begun()
		return err
	}
	if _, err := os.Stat(filepath.Join(f.Dir, store.File)); err != nil {
		return job.InputError(fmt.Errorf("%s holds no run to resume; leave --resume out", f.Dir))
	}
	if _, err := os.Stat(filepath.Join(f.Dir, JobFile)); err == nil {
		return nil
	}
	if of, err := ofGateway(f.Dir); err == nil && of { // one that cannot be read is told of where it is opened for writing
		return job.InputError(fmt.Errorf("%s holds what a gateway recorded, and no run to resume; leave --resume out, and give another folder with --output", f.Dir))
	}
	return nil
}

// errLocked says that another process has the folder.
var errLocked = errors.New("the folder is locked")

// The time that Lock waits for a process that is ending, or that looks whether the folder is locked.
const (
	lockTries = 20
	lockPause = 50 * time.Millisecond
)

// Lock keeps other processes from the run folder as long as this one is there: they would number the records of the store
// and write the lines of metrics.jsonl as if they were alone.
func (f *Folder) Lock(note func(string)) (err error) {
	f.unlock, err = lockFolder(f.Dir)
	for try := 0; errors.Is(err, errLocked) && try < lockTries; try++ {
		time.Sleep(lockPause)
		f.unlock, err = lockFolder(f.Dir)
	}
	switch {
	case err == nil:
	case errors.Is(err, errLocked):
		return fmt.Errorf("orchestrator: another process trains in %s or serves a gateway there; wait until it has ended, or give another folder with --output", f.Dir)
	default: // a network's file system may have no locks
		note(fmt.Sprintf("%s cannot be locked (%v); see to it that no other process writes there", f.Dir, err))
	}
	return nil
}

// cannotBeMade is the error of a run folder that cannot be made: its path is the fault, unless the disk is.
func cannotBeMade(err error) error {
	err = fmt.Errorf("orchestrator: run folder: %w", err)
	for _, path := range []error{fs.ErrPermission, fs.ErrNotExist, syscall.ENOTDIR, syscall.EROFS} {
		if errors.Is(err, path) {
			return job.InputError(fmt.Errorf("%w; give another folder with --output", err))
		}
	}
	return err
}

// Open makes the run folder and writes the job into it, or opens the one to resume, whose job GoOn writes. note gets what the user should know.
func (f *Folder) Open(j *job.Job, note func(string)) (err error) {
	if err := os.MkdirAll(f.Checkpoints(), 0o755); err != nil {
		return cannotBeMade(err)
	}
	if !f.resume {
		if err := f.Lock(note); err != nil {
			return err
		}
		held, err := f.begun() // another run may have been here meanwhile
		if err != nil {
			return err
		}
		if held {
			if err := f.clear(note); err != nil {
				return err
			}
			if err := os.MkdirAll(f.Checkpoints(), 0o755); err != nil {
				return fmt.Errorf("orchestrator: run folder: %w", err)
			}
		}
	}
	if err := checkpoint.RemoveUnfinished(f.Checkpoints()); err != nil {
		return err
	}
	// the store goes first: a job.yaml without one is not of a run
	if f.DB, err = store.Open(filepath.Join(f.Dir, store.File)); err != nil {
		return err
	}
	if !f.resume {
		if err := f.record(j, note); err != nil {
			return err
		}
	}
	folder, err := f.path()
	if err != nil {
		return err
	}
	facts := []store.Fact{{Name: nameFact, Value: f.Name}, {Name: folderFact, Value: folder}, {Name: placeFact, Value: f.place()}}
	if err := f.DB.SetFacts(context.Background(), facts...); err != nil { // together: the name of a copy is never at its place
		return err
	}
	if f.Metrics, err = os.OpenFile(filepath.Join(f.Dir, metricsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	return nil
}

// GoOn writes the job of a run that goes on with it after so many steps; the folder of one that is refused keeps that of before. So does the folder of a
// run that is at its last step: other settings would have trained nothing in it, and its replay would take them. note gets what changed.
func (f *Folder) GoOn(j *job.Job, done int, note func(string)) error {
	if !f.resume { // Open did
		return nil
	}
	planned, err := Planned(f.DB.Reader)
	if err != nil {
		return err
	}
	if done < j.Trainer.Steps || planned != j.Trainer.Steps {
		return f.record(j, note)
	}
	more := "trainer.steps"
	if j.SFT != nil && j.SFT.Epochs > 0 {
		more = "sft.epochs"
	}
	note(fmt.Sprintf("nothing is left to train: %d of %d steps are done; raise %s to go on", done, planned, more))
	before, err := os.ReadFile(filepath.Join(f.Dir, JobFile))
	if err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	changes, err := changedSettings(completed(j, before), j.Source())
	if err != nil || len(changes) == 0 { // the same settings, written otherwise or at another place
		return f.record(j, note)
	}
	note(fmt.Sprintf("the run keeps its %s without the settings that changed: %s", JobFile, strings.Join(changes, ", ")))
	return nil
}

// record writes the job into the folder, and into the store how many steps it takes and where it lies.
func (f *Folder) record(j *job.Job, note func(string)) error {
	if err := f.writeJob(j, note); err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	facts := []store.Fact{{Name: plannedFact, Value: strconv.Itoa(j.Trainer.Steps)}}
	if path, err := filepath.Abs(j.Path()); err == nil { // what the job's relative paths are relative to
		facts = append(facts, store.Fact{Name: JobFact, Value: path})
	}
	return f.DB.SetFacts(context.Background(), facts...)
}

// Planned is how many steps a run takes, as its process wrote into the store; 0: an older program wrote none.
func Planned(db *store.Reader) (int, error) {
	text, err := db.Fact(plannedFact)
	if err != nil || text == "" {
		return 0, err
	}
	steps, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("the planned steps in the store cannot be read: %w", err)
	}
	return steps, nil
}

// Log appends a line to metrics.jsonl.
func (f *Folder) Log(line map[string]any) error {
	data, err := json.Marshal(line)
	if err == nil {
		_, err = f.Metrics.Write(append(data, '\n'))
	}
	return cannotBeWritten(err)
}

const metricsFile = "metrics.jsonl"

// cannotBeWritten is an error of metrics.jsonl; a full disk has the advice that the store gives.
func cannotBeWritten(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("orchestrator: %s: %w%s", metricsFile, err, store.FreeSpace)
	}
	return fmt.Errorf("orchestrator: %s: %w", metricsFile, err)
}

// MetricsFile is the path of metrics.jsonl.
func (f *Folder) MetricsFile() string { return filepath.Join(f.Dir, metricsFile) }

// ReplaceMetrics writes metrics.jsonl anew; a process that is killed leaves the old one or the new one.
func (f *Folder) ReplaceMetrics(text []byte) error {
	err := modelfile.WriteFile(f.MetricsFile(), text, 0o644)
	if err == nil {
		err = f.Metrics.Close()
	}
	if err == nil {
		f.Metrics, err = os.OpenFile(f.MetricsFile(), os.O_APPEND|os.O_WRONLY, 0o644)
	}
	return cannotBeWritten(err)
}

// Checkpoints is the folder of the run's checkpoints.
func (f *Folder) Checkpoints() string { return checkpoint.FolderOf(f.Dir) }

// Close closes what Open opened, and lets other processes in.
func (f *Folder) Close() error {
	var errs []error
	if f.DB != nil {
		errs = append(errs, f.DB.Close())
	}
	if f.Metrics != nil {
		errs = append(errs, f.Metrics.Close())
	}
	if f.unlock != nil {
		f.unlock()
	}
	return errors.Join(errs...)
}
