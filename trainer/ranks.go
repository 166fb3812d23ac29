//go:build torch

package trainer

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/cgo"
)

// ranks are the processes that train one model together. Where this one is alone, each method does what is left to do.
type ranks struct {
	group *cgo.Group // nil: alone
	near  cgo.Neighbours
}

// newRanks are the processes of a configuration; a group of a single one is none.
func newRanks(c Config) (r ranks, err error) {
	if c.Group == nil || c.Group.World() == 1 {
		return ranks{}, nil
	}
	if n := c.Neighbours.World(); c.Group.World()%n != 0 || c.Group.Rank()%n != c.Neighbours.Rank() {
		return ranks{}, fmt.Errorf("trainer: rank %d of %d is %d of %d neighbours; they follow each other, and all have as many", c.Group.Rank(), c.Group.World(), c.Neighbours.Rank(), n)
	}
	return ranks{c.Group, c.Neighbours}, nil
}

// perBatch is how many ranks compute a micro-batch together.
func (r ranks) perBatch() int { return r.near.World() }

// besideLead reports whether this rank computes micro-batches together with rank 0.
func (r ranks) besideLead() bool { return r.perBatch() > 1 && r.group.Rank() < r.perBatch() }

// speaks reports whether this rank tells what those found that compute the same micro-batches, of which one does.
func (r ranks) speaks() bool { return r.near.Rank() == 0 }

// abandon ends the wait of the ranks that compute a micro-batch with this one, which an error keeps from coming. What is wrong with the
// numbers all of them find alike, and go on.
func (r ranks) abandon(err error) {
	if err != nil && !IsNonFinite(err) {
		r.near.Fail(err.Error())
	}
}

// alone reports whether there is no other process.
func (r ranks) alone() bool { return r.group == nil }

// leads reports whether this process gives the orders, or is alone.
func (r ranks) leads() bool { return r.alone() || r.group.Rank() == 0 }

// tell sends an order to the others; rank 0 then does its own part of it.
func (r ranks) tell(o order) error {
	if r.alone() {
		return nil
	}
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(o); err != nil {
		return fmt.Errorf("trainer: ranks: %s: %w", o.Kind, err)
	}
	_, err := r.group.Broadcast(0, text.Bytes())
	return err
}

// fail ends the wait of the others for this process, which an error keeps from coming. Where an error of theirs has ended it already, that stays.
func (r ranks) fail(err error) {
	if !r.alone() {
		r.group.Fail(err.Error())
	}
}

// verdict is what a rank says after its part of a step.
type verdict struct {
	Value     float64
	Err       string
	NonFinite bool // see IsNonFinite
}

// together returns the sum of value over the ranks, or, on all of them, an error when one has one: so that no rank waits
// for the gradients of another that has none.
func (r ranks) together(value float64, err error) (float64, error) {
	if r.alone() {
		return value, err
	}
	r.abandon(err)
	if !r.speaks() {
		value = 0
	}
	mine := verdict{Value: value}
	if err != nil {
		mine.Err, mine.NonFinite = err.Error(), IsNonFinite(err)
	}
	all, exchangeErr := exchange(r.group, mine)
	if err != nil {
		return 0, err
	}
	if exchangeErr != nil {
		return 0, exchangeErr
	}
	sum := 0.0
	for rank, v := range all {
		if v.Err != "" {
			err := fmt.Errorf("rank %d: %s", rank, v.Err)
			if v.NonFinite {
				err = nonFinite{err}
			}
			return 0, err
		}
		sum += v.Value
	}
	return sum, nil
}

// alike reports whether yes holds on every rank that computes the same micro-batches.
func (r ranks) alike(yes bool) (bool, error) {
	for _, g := range r.near.Groups() {
		all, err := exchange(g, yes)
		if err != nil {
			return false, err
		}
		yes = !slices.Contains(all, false)
	}
	return yes, nil
}

const nobody = "no single trajectory is to blame"

// accused is the first rank's answer that names a trajectory.
func (r ranks) accused(name string) string {
	if r.alone() {
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
