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
	Kind   string // step, weights, state, set state, steps, release
	Batch  Batch
	Rates  Schedule // of the optimizer steps that follow: rank 0's, whatever the others were made with
	Zero   []place  // turns of Batch whose reward is 0, which gob makes nil
	Name   string   // of a parameter
	Moment cgo.Moment
	Values []float32
	Steps  int64
}

// tell sends an order; rank 0 then does its own part of it.
func (t *Trainer) tell(o order) error {
	if t.group == nil {
		return nil
	}
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(o); err != nil {
		return fmt.Errorf("trainer: ranks: %s: %w", o.Kind, err)
	}
	_, err := t.group.Broadcast(0, text.Bytes())
	return err
}

// Follow does what rank 0's trainer does until that one is released. A step that fails does so on all ranks, and rank 0
// decides whether the run goes on. Follow returns what made it end, or names the rank that is gone.
func (t *Trainer) Follow(ctx context.Context) error {
	for {
		text, err := t.group.Await(0)
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
			t.group.Fail(err.Error())
			return err
		}
	}
}

func (t *Trainer) obey(ctx context.Context, o order) error {
	switch o.Kind {
	case "step":
		t.config.Schedule = o.Rates
		_, err := t.Step(ctx, o.batch())
		return err
	case "weights":
		return t.group.BroadcastModel(t.model)
	case "state":
		_, err := t.optimizer.State(o.Name, o.Moment)
		return err
	case "set state":
		return t.optimizer.SetState(o.Name, o.Moment, o.Values)
	case "steps":
		return t.optimizer.SetStepCount(o.Steps)
	}
	return fmt.Errorf("trainer: ranks: rank 0 orders %q, which this program does not know; do all ranks run the same program?", o.Kind)
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

// leads reports whether this process gives the orders, or is alone.
func (t *Trainer) leads() bool { return t.group == nil || t.group.Rank() == 0 }

// Release ends Follow on the other ranks; no further call of theirs is possible.
func (t *Trainer) Release() error {
	if t.group == nil || !t.leads() {
		return nil
	}
	return t.tell(order{Kind: "release"})
}

// shareWeights gives the other ranks this one's parameters.
func (t *Trainer) shareWeights() error {
	if t.group == nil {
		return nil
	}
	if err := t.tell(order{Kind: "weights"}); err != nil {
		return err
	}
	return t.group.BroadcastModel(t.model)
}

// state and the two after it are the optimizer's on every rank at once.
func (t *Trainer) state(name string, which cgo.Moment) ([]float32, error) {
	if err := t.tell(order{Kind: "state", Name: name, Moment: which}); err != nil {
		return nil, err
	}
	return t.optimizer.State(name, which)
}

func (t *Trainer) setState(name string, which cgo.Moment, values []float32) error {
	if err := t.tell(order{Kind: "set state", Name: name, Moment: which, Values: values}); err != nil {
		return err
	}
	return t.optimizer.SetState(name, which, values)
}

func (t *Trainer) setSteps(n int64) error {
	if err := t.tell(order{Kind: "steps", Steps: n}); err != nil {
		return err
	}
	return t.optimizer.SetStepCount(n)
}

// verdict is what a rank says after its part of a step.
type verdict struct {
	Value     float64
	Err       string
	NonFinite bool // see IsNonFinite
}

// together returns the sum of value over the ranks, or, on all of them, an error when one has one: so that no rank waits
// for the gradients of another that has none.
func (t *Trainer) together(value float64, err error) (float64, error) {
	if t.group == nil {
		return value, err
	}
	mine := verdict{Value: value}
	if err != nil {
		mine.Err, mine.NonFinite = err.Error(), IsNonFinite(err)
	}
	all, exchangeErr := exchange(t.group, mine)
	if err != nil {
		return 0, err
	}
	if exchangeErr != nil {
		return 0, exchangeErr
	}
	sum := 0.0
	for r, v := range all {
		if v.Err != "" {
			err := fmt.Errorf("rank %d: %s", r, v.Err)
			if v.NonFinite {
				err = nonFinite{err}
			}
			return 0, err
		}
		sum += v.Value
	}
	return sum, nil
}

// exchange gives every rank the values of all.
func exchange[T any](g *cgo.Group, mine T) ([]T, error) {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(mine); err != nil {
		return nil, fmt.Errorf("trainer: ranks: %w", err)
	}
	all, err := g.Gather(text.Bytes())
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for r := range all {
		if err := gob.NewDecoder(bytes.NewReader(all[r])).Decode(&out[r]); err != nil {
			return nil, fmt.Errorf("trainer: ranks: what rank %d sent cannot be read: %w", r, err)
		}
	}
	return out, nil
}

// assign deals the trajectories of each mini-batch out: each rank gets a run of neighbours, which share prompts, and nearly
// the same number of tokens.
func (r *stepRun) assign() {
	if r.group == nil {
		return
	}
	r.owner = make([]int, len(r.units))
	tokens := func(u int) (n int) {
		for _, i := range r.units[u].items {
			n += r.items[i].Sample.Len()
		}
		return n
	}
	for _, units := range r.miniBatches(r.algorithm.MiniBatches) {
		total, before := 0, 0
		for _, u := range units {
			total += tokens(u)
		}
		for _, u := range units {
			n := tokens(u)
			r.owner[u] = (2*before + n) * r.group.World() / (2 * max(1, total)) // where its middle falls
			before += n
		}
	}
}

// mine reports whether this rank computes the trajectory.
func (r *stepRun) mine(u int) bool { return r.owner == nil || r.owner[u] == r.group.Rank() }

// results is what a rank computed of a batch.
type results struct {
	Items                                      []int // indices into plan.items
	Old, Entropy, Reference, Values            [][]float64
	Units                                      []int // indices into plan.units, of bootstrap
	Bootstrap                                  []float64
	Clipped, Passed, Dropped                   int
	MicroBatches, PackedTokens, UnpackedTokens int
	ValueLoss                                  float64
}

// shareEarly gives every rank what the estimator reads of all trajectories, or the error of the rank that has one.
func (r *stepRun) shareEarly(err error) error {
	if _, err := r.together(0, err); err != nil {
		return err
	}
	if r.reference == nil && r.values == nil {
		return nil
	}
	_, err = r.trade()
	return err
}

// collect gives every rank the results of all, and sums up what they counted.
func (r *stepRun) collect() error {
	all, err := r.trade()
	if err != nil || all == nil {
		return err
	}
	m := &r.metrics
	r.clipped, r.passed, r.dropped, m.MicroBatches, m.PackedTokens, m.UnpackedTokens, m.ValueLoss = 0, 0, 0, 0, 0, 0, 0
	for _, x := range all {
		r.clipped += x.Clipped
		r.passed += x.Passed
		r.dropped += x.Dropped
		m.MicroBatches += x.MicroBatches
		m.PackedTokens += x.PackedTokens
		m.UnpackedTokens += x.UnpackedTokens
		m.ValueLoss += x.ValueLoss
	}
	return nil
}

// trade exchanges the numbers of the own trajectories for those of the others. It returns nil where there are no others.
func (r *stepRun) trade() ([]results, error) {
	if r.group == nil {
		return nil, nil
	}
	m := r.metrics
	mine := results{
		Clipped: r.clipped, Passed: r.passed, Dropped: r.dropped, MicroBatches: m.MicroBatches, PackedTokens: m.PackedTokens,
		UnpackedTokens: m.UnpackedTokens, ValueLoss: m.ValueLoss,
	}
	pick := func(from [][]float64, i int) []float64 {
		if from == nil {
			return nil
		}
		return from[i]
	}
	for i := range r.items {
		if r.mine(r.unitOf[i]) {
			mine.Items = append(mine.Items, i)
			mine.Old, mine.Entropy = append(mine.Old, pick(r.old, i)), append(mine.Entropy, pick(r.entropy, i))
			mine.Reference, mine.Values = append(mine.Reference, pick(r.reference, i)), append(mine.Values, pick(r.values, i))
		}
	}
	for u := range r.bootstrap {
		if r.mine(u) {
			mine.Units, mine.Bootstrap = append(mine.Units, u), append(mine.Bootstrap, r.bootstrap[u])
		}
	}
	all, err := exchange(r.group, mine)
	if err != nil {
		return nil, err
	}
	put := func(to [][]float64, i int, values []float64) {
		if to != nil && len(values) > 0 { // nil comes as empty: it was not computed
			to[i] = values
		}
	}
	for _, x := range all {
		for k, i := range x.Items {
			put(r.old, i, x.Old[k])
			put(r.entropy, i, x.Entropy[k])
			put(r.reference, i, x.Reference[k])
			put(r.values, i, x.Values[k])
		}
		for k, u := range x.Units {
			r.bootstrap[u] = x.Bootstrap[k]
		}
	}
	return all, nil
}

// accused is the first rank's answer that names a trajectory.
func (r *stepRun) accused(name string) string {
	if r.group == nil {
		return name
	}
	all, err := exchange(r.group, name)
	if err != nil {
		return name
	}
	for _, n := range all {
		if n != nobody {
			return n
		}
	}
	return name
}
