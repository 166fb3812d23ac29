//go:build torch

package trainer

import (
	"slices"

	"github.com/agentfly/agentfly/algorithms"
)

// miniBatch is what one optimizer step needs.
type miniBatch struct {
	units   []int
	weight  map[int]float64 // of every token, by unit
	moves   bool            // whether a trajectory of it, on any rank, can move the weights
	value   float64         // of every token in the critic's loss
	train   []MicroBatch    // forward, loss, backward
	forward []MicroBatch    // forward alone, for the metrics
	cut     map[int]bool    // units of which one micro-batch of train does not hold all rows
}

func (c Config) packOptions(temperature float64) PackOptions {
	return PackOptions{MicroBatchTokens: c.MicroBatchTokens, MaxLength: c.MaxLength, Temperature: temperature, minShared: c.minShared}
}

// packing makes micro-batches of the trajectories of a plan that this rank computes.
type packing struct {
	plan    *plan
	share   share
	options PackOptions
}

// pack packs the units for which use is true. Rows keep indexing plan.items.
func (p packing) pack(units []int, use func(u unit) bool) ([]MicroBatch, error) {
	var items []PackItem
	var index []int
	for _, u := range units {
		if !use(p.plan.units[u]) || !p.share.mine(u) {
			continue
		}
		for _, i := range p.plan.units[u].items {
			items = append(items, p.plan.items[i])
			index = append(index, i)
		}
	}
	batches, err := Pack(items, p.options)
	if err != nil {
		return nil, err
	}
	for _, mb := range batches {
		for i := range mb.Rows {
			mb.Rows[i].Item = index[mb.Rows[i].Item]
		}
	}
	return batches, nil
}

// all packs every trajectory.
func (p packing) all() ([]MicroBatch, error) {
	units := make([]int, len(p.plan.units))
	for u := range units {
		units[u] = u
	}
	return p.pack(units, func(unit) bool { return true })
}

// miniBatch weighs and packs the units of an optimizer step.
func (p packing) miniBatch(units []int, a *algorithms.Algorithm) (miniBatch, error) {
	mb := miniBatch{units: units, weight: map[int]float64{}}
	var tokens []int
	for _, u := range units {
		tokens = append(tokens, p.plan.units[u].tokens)
	}
	weights, err := a.Aggregation.TokenWeights(tokens)
	if err != nil {
		return mb, err
	}
	total := 0
	for i, u := range units {
		mb.weight[u] = weights[i]
		total += tokens[i]
	}
	mb.value = 1 / float64(max(total, 1))
	flat := func(u unit) bool { return u.flat && a.ZeroWithoutAdvantage() }
	mb.moves = slices.ContainsFunc(units, func(u int) bool { return !flat(p.plan.units[u]) })
	if mb.train, err = p.pack(units, func(u unit) bool { return !flat(u) }); err != nil {
		return mb, err
	}
	mb.cut = p.cutUnits(mb.train)
	mb.forward, err = p.pack(units, flat)
	return mb, err
}

// cutUnits finds the units whose rows lie in several micro-batches: trajectories of several samples.
func (p packing) cutUnits(batches []MicroBatch) map[int]bool {
	in, cut := map[int]int{}, map[int]bool{}
	for i, mb := range batches {
		for _, row := range mb.Rows {
			u := p.plan.unitOf[row.Item]
			if at, seen := in[u]; seen && at != i {
				cut[u] = true
			}
			in[u] = i
		}
	}
	return cut
}
