//go:build torch

package trainer

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// How several processes train one model. Rank 0 has the batches and calls Step, Save and Load; the others call Follow,
// which does the same calls on what rank 0 sends:
//
//	rank 0   Step(batch) ── batch ──► all: plan, own trajectories forward and backward
//	                                  all: gradients summed, own shard of AdamW, parameters gathered
//	         metrics, old logprobs ◄─ what each rank computed
//
// Advantages, mini-batches and the weights of tokens come from the whole batch on every rank, so the denominators are
// those of one process. A trajectory is computed by one rank. All of it is nothing where there is no group.

// order is what rank 0 tells the others to do next.
type order struct {
	Kind   string // step, logprobs, weights, state, set state, steps, lend memory, reclaim memory, release
	Batch  Batch
	Rates  Schedule // of the optimizer steps that follow: rank 0's, whatever the others were made with
	Shared bool     // rank 0's Config.Shared
	Zero   []place  // turns of Batch whose reward is 0, which gob makes nil
	Name   string   // of a parameter
	Moment cgo.Moment
	Values []float32
	Steps  int64

	Samples     []*trajectory.Sample // of logprobs
	Temperature float64
}

// place is a turn of a batch.
type place struct{ Group, Trajectory, Turn int }

// stepOrder is what the other ranks need of a batch: no tasks, whose fields may be of any type.
func stepOrder(b Batch, rates Schedule) order {
	o := order{Kind: "step", Rates: rates}
	groups := make([]*trajectory.Group, len(b.Groups))
	for i, g := range b.Groups {
		copied := *g
		copied.Task = trajectory.Task{ID: g.Task.ID}
		groups[i] = &copied
		for k, t := range g.Trajectories {
			for n, turn := range t.Turns {
				if turn.Reward != nil && *turn.Reward == 0 {
					o.Zero = append(o.Zero, place{i, k, n})
				}
			}
		}
	}
	o.Batch = b
	o.Batch.Groups = groups
	return o
}

// batch is the batch that stepOrder was made of.
func (o order) batch() Batch {
	for _, p := range o.Zero {
		o.Batch.Groups[p.Group].Trajectories[p.Trajectory].Turns[p.Turn].Reward = new(float64)
	}
	return o.Batch
}

// Follow does what rank 0's trainer does until that one is released. A step that fails does so on all ranks, and rank 0
// decides whether the run goes on. Follow returns what made it end, or names the rank that is gone.
func (t *Trainer) Follow(ctx context.Context) error {
	for {
		text, err := t.ranks.group.Await(0)
		if err != nil {
			return fmt.Errorf("trainer: ranks: %w", err)
		}
		var o order
		if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&o); err != nil {
			return fmt.Errorf("trainer: ranks: an order of rank 0 cannot be read: %w; do all ranks run the same program?", err)
		}
		if o.Kind == "release" {
			return nil
		}
		switch err := t.obey(ctx, o); {
		case err == nil, o.Kind == "step" && !errors.Is(err, cgo.ErrRank): // rank 0 has the error too, and decides what follows
		default:
			t.ranks.group.Fail(err.Error())
			return err
		}
	}
}

func (t *Trainer) obey(ctx context.Context, o order) error {
	switch o.Kind {
	case "step":
		t.config.Schedule, t.shared = o.Rates, o.Shared
		_, err := t.Step(ctx, o.batch())
		return err
	case "logprobs":
		if !t.ranks.besideLead() {
			return nil
		}
		_, err := t.logprobs(context.WithoutCancel(ctx), o.Samples, o.Temperature)
		return err
	case "weights":
		return t.optimizer.Share()
	case "state":
		_, err := t.optimizer.State(o.Name, o.Moment)
		return err
	case "set state":
		return t.optimizer.SetState(o.Name, o.Moment, o.Values)
	case "steps":
		return t.optimizer.SetStepCount(o.Steps)
	case lend, reclaim:
		return t.move(ctx, o.Kind)
	}
	return fmt.Errorf("trainer: ranks: rank 0 orders %q, which this program does not know; do all ranks run the same program?", o.Kind)
}

// Release ends Follow on the other ranks; no further call of theirs is possible.
func (t *Trainer) Release() error {
	if !t.ranks.leads() {
		return nil
	}
	return t.ranks.tell(order{Kind: "release"})
}

// shareWeights gives the other ranks this one's parameters.
func shareWeights(r ranks, o *cgo.Optimizer) error {
	if r.alone() {
		return nil
	}
	if err := r.tell(order{Kind: "weights"}); err != nil {
		return err
	}
	return o.Share()
}

// shardedState is the optimizer's state, of which each rank has a shard: it is read and written on every rank at once.
type shardedState struct {
	optimizer *cgo.Optimizer
	ranks     ranks
}

// get is a moment of a parameter.
func (s shardedState) get(name string, which cgo.Moment) ([]float32, error) {
	if err := s.ranks.tell(order{Kind: "state", Name: name, Moment: which}); err != nil {
		return nil, err
	}
	return s.optimizer.State(name, which)
}

func (s shardedState) set(name string, which cgo.Moment, values []float32) error {
	if err := s.ranks.tell(order{Kind: "set state", Name: name, Moment: which, Values: values}); err != nil {
		return err
	}
	return s.optimizer.SetState(name, which, values)
}

func (s shardedState) setSteps(n int64) error {
	if err := s.ranks.tell(order{Kind: "steps", Steps: n}); err != nil {
		return err
	}
	return s.optimizer.SetStepCount(n)
}
