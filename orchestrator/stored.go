package orchestrator

import (
	"context"
	"math"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// EachStored calls f for the trajectories of a run folder that a filter names. decode is the run's own: see Decoder, for which known are the kinds of
// agents that its job may name.
func EachStored(ctx context.Context, dir string, q overview.Filter, known *agents.Registry, f func(r store.Record, decode func([]int32) string) error) error {
	decode := sync.OnceValue(func() func([]int32) string {
		text, _ := Decoder(dir, known)
		return text
	})
	return overview.Trajectories(ctx, dir, q, func(r store.Record) error {
		return f(r, func(ids []int32) string { return decode()(ids) })
	})
}

// Token is one token of a stored trajectory.
type Token struct {
	ID              int32    `json:"id"`
	Text            string   `json:"text"` // "": part of the character that a token before begins
	Mask            int      `json:"mask"` // 1: sampled by the policy
	SamplingLogprob *float32 `json:"sampling_logprob,omitempty"`
	OldLogprob      *float32 `json:"old_logprob,omitempty"`
	Advantage       *float32 `json:"advantage,omitempty"`
	Entropy         *float32 `json:"entropy,omitempty"` // nats, of the trainer's distribution before the update
	PolicyVersion   *int32   `json:"policy_version,omitempty"`
}

// Inspected is a stored trajectory for people and other programs.
type Inspected struct {
	Phase      string                 `json:"phase"`
	Task       trajectory.Task        `json:"task"`
	Trajectory *trajectory.Trajectory `json:"trajectory"`
	Samples    [][]Token              `json:"samples"`
}

// Inspect lays a record out token by token. Old logprobs, advantages and entropies are those of its newest update.
func Inspect(r store.Record, decode func([]int32) string) Inspected {
	out := Inspected{Phase: r.Phase, Task: r.Task, Trajectory: r.Trajectory}
	for k, s := range r.Trajectory.Samples {
		var update *store.Update
		for i := range r.Updates {
			if r.Updates[i].Sample == k {
				update = &r.Updates[i]
			}
		}
		tokens, texts := make([]Token, s.Len()), tokenizer.Texts(s.TokenIDs, decode)
		for i, id := range s.TokenIDs {
			tokens[i] = Token{ID: id, Text: texts[i]}
			if !s.ResponseMask[i] {
				continue
			}
			t := &tokens[i]
			t.Mask, t.SamplingLogprob, t.PolicyVersion = 1, numberOf(s.SamplingLogprobs, i), &s.PolicyVersion[i]
			if update != nil {
				t.OldLogprob, t.Advantage, t.Entropy = numberOf(update.OldLogprobs, i), numberOf(update.Advantages, i), numberOf(update.Entropy, i)
			}
		}
		out.Samples = append(out.Samples, tokens)
	}
	return out
}

// numberOf is number i; nil: there is none, or one that JSON does not have.
func numberOf(all []float32, i int) *float32 {
	if i >= len(all) || math.IsNaN(float64(all[i])) || math.IsInf(float64(all[i]), 0) {
		return nil
	}
	return &all[i]
}
