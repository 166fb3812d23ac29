package orchestrator

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
)

// errEnough ends the reading of a store early.
var errEnough = errors.New("enough")

// EachStored calls f for the stored trajectories of a run folder, for the one with an id where id is not empty, and for limit at most
// where limit is not 0. decode is the run's own: see decoder, for which known are the kinds of agents that its job may name.
func EachStored(dir, id string, limit int, known *agents.Registry, f func(r store.Record, decode func([]int32) string) error) error {
	db, err := store.OpenReader(filepath.Join(dir, "store.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	decode := decoder(dir, known)
	n := 0
	err = db.Each(id, func(r store.Record) error {
		if limit > 0 && n >= limit {
			return errEnough
		}
		n++
		return f(r, decode)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// decoder decodes with the tokenizer of the run's last checkpoint, or of the job's model before there is one. Without
// either it shows the ids.
func decoder(dir string, known *agents.Registry) func([]int32) string {
	paths := []string{checkpoint.LastOf(dir)}
	if j, err := job.LoadWith(filepath.Join(dir, "job.yaml"), job.Options{Agents: known}); err == nil {
		paths = append(paths, j.Model.Path)
	}
	for _, path := range paths {
		if text, err := policy.LoadText(path); err == nil {
			return func(ids []int32) string { return text.Tokenizer.Decode(ids, false) }
		}
	}
	return func(ids []int32) string { return fmt.Sprint(ids) }
}
