package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Facts of the store: the name of the run, which its weights on servers have, and the folder and the machine that it was given in.
const (
	nameFact   = "name"
	folderFact = "folder"
	placeFact  = "place"
)

// identify names the run: a new one anew, one that goes on as it was. A folder that was copied or moved since is another run,
// because two runs of one name would not notice each other on a server.
func (t *run) identify() (err error) {
	folder, err := filepath.Abs(t.dir)
	if err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	t.folder = folder
	t.weights.Run = vllm.NewRun(t.job.Name)
	if !t.options.Resume {
		return nil
	}
	db, err := store.Open(filepath.Join(t.dir, store.File))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	facts := map[string]string{}
	for _, fact := range []string{nameFact, folderFact, placeFact} {
		if facts[fact], err = db.Fact(fact); err != nil {
			return err
		}
	}
	here := facts[folderFact] == folder
	if place := facts[placeFact]; here && place != "" { // an older program wrote none
		here = place == t.place()
	}
	if name := facts[nameFact]; here && name != "" {
		t.weights.Run = name
	}
	return nil
}

// place tells the run folder from a copy of it at the same path, such as one that another container mounts there: by the
// machine, and on one machine by the file that is the store.
func (t *run) place() string {
	host, _ := os.Hostname() // what a system does not tell does not tell copies apart
	machine, _ := os.ReadFile("/etc/machine-id")
	var file uint64
	if info, err := os.Stat(filepath.Join(t.dir, store.File)); err == nil {
		file = inode(info)
	}
	return fmt.Sprintf("host %s, machine %s, store.db is inode %d", host, bytes.TrimSpace(machine), file)
}

// checkFolder keeps a new run from writing over an old one.
func (t *run) checkFolder() error {
	_, err := os.Stat(filepath.Join(t.dir, store.File))
	switch {
	case err == nil && !t.options.Resume:
		return job.InputError(fmt.Errorf("%s holds a run already; continue it with --resume, or give another folder with --output", t.dir))
	case err != nil && t.options.Resume:
		return job.InputError(fmt.Errorf("%s holds no run to resume; leave --resume out", t.dir))
	}
	return nil
}

// errLocked says that another process has the folder.
var errLocked = errors.New("the folder is locked")

// lock keeps other processes from the run folder as long as this one is there: they would number the records of the store
// and write the lines of metrics.jsonl as if they were alone.
func (t *run) lock() (err error) {
	t.unlock, err = lockFolder(t.dir)
	switch {
	case err == nil:
	case errors.Is(err, errLocked):
		return fmt.Errorf("orchestrator: another process trains in %s; wait until it has ended, or give another folder with --output", t.dir)
	default: // a network's file system may have no locks
		t.say("note: %s cannot be locked (%v); see to it that no other process trains there", t.dir, err)
	}
	return nil
}

// makeFolder makes the run folder, or opens the one to resume.
func (t *run) makeFolder(j *job.Job) (err error) {
	if err := os.MkdirAll(filepath.Join(t.dir, "checkpoints"), 0o755); err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	if !t.options.Resume {
		if err := t.lock(); err != nil {
			return err
		}
		if err := t.checkFolder(); err != nil { // another run may have been here meanwhile
			return err
		}
	}
	if err := removeUnfinished(filepath.Join(t.dir, "checkpoints")); err != nil {
		return err
	}
	if err := t.writeJob(j); err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	if t.db, err = store.Open(filepath.Join(t.dir, store.File)); err != nil {
		return err
	}
	identity := []store.Fact{{Name: nameFact, Value: t.weights.Run}, {Name: folderFact, Value: t.folder}, {Name: placeFact, Value: t.place()}}
	if err := t.db.SetFacts(context.Background(), identity...); err != nil { // together: the name of a copy is never at its place
		return err
	}
	t.rollout.Record = t.db.AddTurn
	if path, err := filepath.Abs(j.Path()); err == nil { // what the job's relative paths are relative to
		if err := t.db.SetFact(context.Background(), jobFact, path); err != nil {
			return err
		}
	}
	if t.metrics, err = os.OpenFile(filepath.Join(t.dir, "metrics.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("orchestrator: run folder: %w", err)
	}
	return nil
}
