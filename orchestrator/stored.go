package orchestrator

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
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
	if j, err := OfRun(dir, known); err == nil && j.Model.Path != "" {
		paths = append(paths, j.ModelPath(j.Model.Path))
	}
	for _, path := range paths {
		if text, err := policy.LoadText(path); err == nil {
			return func(ids []int32) string { return text.Tokenizer.Decode(ids, false) }
		}
	}
	return func(ids []int32) string { return fmt.Sprint(ids) }
}

// Token is one token of a stored trajectory.
type Token struct {
	ID              int32    `json:"id"`
	Text            string   `json:"text"`
	Mask            int      `json:"mask"` // 1: sampled by the policy
	SamplingLogprob *float32 `json:"sampling_logprob,omitempty"`
	OldLogprob      *float32 `json:"old_logprob,omitempty"`
	Advantage       *float32 `json:"advantage,omitempty"`
	PolicyVersion   *int32   `json:"policy_version,omitempty"`
}

// Inspected is a stored trajectory for people and other programs.
type Inspected struct {
	Phase      string                 `json:"phase"`
	Task       trajectory.Task        `json:"task"`
	Trajectory *trajectory.Trajectory `json:"trajectory"`
	Samples    [][]Token              `json:"samples"`
}

// Inspect lays a record out token by token. Old logprobs and advantages are those of its newest update.
func Inspect(r store.Record, decode func([]int32) string) Inspected {
	out := Inspected{Phase: r.Phase, Task: r.Task, Trajectory: r.Trajectory}
	for k, s := range r.Trajectory.Samples {
		var update *store.Update
		for i := range r.Updates {
			if r.Updates[i].Sample == k {
				update = &r.Updates[i]
			}
		}
		tokens := make([]Token, s.Len())
		for i, id := range s.TokenIDs {
			tokens[i] = Token{ID: id, Text: decode([]int32{id})}
			if !s.ResponseMask[i] {
				continue
			}
			t := &tokens[i]
			t.Mask, t.SamplingLogprob, t.PolicyVersion = 1, &s.SamplingLogprobs[i], &s.PolicyVersion[i]
			if update != nil && i < len(update.OldLogprobs) {
				t.OldLogprob = &update.OldLogprobs[i]
			}
			if update != nil && i < len(update.Advantages) {
				t.Advantage = &update.Advantages[i]
			}
		}
		out.Samples = append(out.Samples, tokens)
	}
	return out
}
