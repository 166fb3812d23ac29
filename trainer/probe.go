//go:build torch

package trainer

import (
	"context"
	"fmt"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// probe runs the policy as it is before the step, and the reference, over micro-batches without gradient, and keeps their
// numbers in the plan: old logprobs, entropies, values, reference logprobs. Its methods run on the model's worker.
type probe struct {
	packing   packing
	model     *cgo.Model
	reference Reference
	together  cgo.Neighbours
}

// early computes what the estimator or the loss reads of the batch before the first optimizer step: reference logprobs, the
// critic's values, and old where kl is in the reward. batches are all of this rank's.
func (p probe) early(ctx context.Context, a *algorithms.Algorithm, batches []MicroBatch) error {
	plan := p.packing.plan
	if a.HasCritic() {
		plan.values = make([][]float64, len(plan.items))
	}
	if a.NeedsReference() {
		plan.reference = make([][]float64, len(plan.items))
	}
	for i := range batches {
		if a.HasCritic() || a.KL.In == "reward" {
			if err := p.old(ctx, &batches[i]); err != nil {
				return err
			}
		}
		if err := p.referenceLogprobs(ctx, &batches[i]); err != nil {
			return err
		}
	}
	return p.bootstraps(ctx)
}

// old runs a forward before the first optimizer step and keeps its numbers: old logprobs, entropies, values.
func (p probe) old(ctx context.Context, mb *MicroBatch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := infer(p.model, &mb.Batch, p.together, p.packing.plan.values != nil)
	if err != nil {
		return err
	}
	return p.packing.plan.record(mb, n)
}

func (p probe) referenceLogprobs(ctx context.Context, mb *MicroBatch) error {
	plan := p.packing.plan
	if plan.reference == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	logprobs, err := p.reference.Logprobs(&mb.Batch, p.together)
	if err != nil {
		return fmt.Errorf("the reference policy: %w", err)
	}
	if len(logprobs) != len(mb.Rows) {
		return fmt.Errorf("the reference policy returned %d logprobs for %d tokens", len(logprobs), len(mb.Rows))
	}
	if err := plan.checkFinite(mb, logprobs, "the reference's logprob"); err != nil {
		return err
	}
	plan.keep(mb, logprobs, plan.reference)
	return nil
}

// bootstraps computes the value of the state that each truncated trajectory ends in: the end of the sample that holds its
// last token. The row that predicts a token appended there stands in that state.
func (p probe) bootstraps(ctx context.Context) error {
	plan := p.packing.plan
	plan.bootstrap = make([]float64, len(plan.units))
	if plan.values == nil {
		return nil
	}
	var items []PackItem
	var units []int
	for u, unit := range plan.units {
		if !unit.truncated || !p.packing.share.mine(u) {
			continue
		}
		last := plan.last(unit)
		s := trajectory.Sample{Media: last.Media}
		s.AppendObservation(last.TokenIDs)
		if err := s.AppendResponse([]int32{0}, []float32{0}, []int32{0}); err != nil {
			return err
		}
		items = append(items, PackItem{Sample: &s, Group: unit.group, Name: unit.name})
		units = append(units, u)
	}
	o := p.packing.options
	if o.MaxLength > 0 {
		o.MaxLength++ // the appended token is predicted, not computed
	}
	batches, err := Pack(items, o)
	if err != nil {
		return err
	}
	for i := range batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := infer(p.model, &batches[i].Batch, p.together, true)
		if err != nil {
			return err
		}
		for j, row := range batches[i].Rows {
			plan.bootstrap[units[row.Item]] = float64(n.values[j])
		}
	}
	return nil
}
