//go:build torch

package trainer

import (
	"context"
	"fmt"

	"github.com/agentfly/agentfly/trajectory"
)

// early computes what the estimator or the loss reads of the batch before the first optimizer step: reference logprobs, the
// critic's values, and old where kl is in the reward.
func (r *stepRun) early(ctx context.Context) error {
	a := r.algorithm
	if !a.HasCritic() && !a.NeedsReference() {
		return nil
	}
	all := make([]int, len(r.units))
	for u := range all {
		all[u] = u
	}
	batches, err := r.pack(all, func(unit) bool { return true })
	if err != nil {
		return err
	}
	if a.HasCritic() {
		r.values = make([][]float64, len(r.items))
	}
	if a.NeedsReference() {
		r.reference = make([][]float64, len(r.items))
	}
	return r.worker.Do(ctx, func() error {
		for i := range batches {
			if a.HasCritic() || a.KL.In == "reward" {
				if err := r.oldLogprobs(ctx, &batches[i]); err != nil {
					return err
				}
			}
			if err := r.referenceLogprobs(ctx, &batches[i]); err != nil {
				return err
			}
		}
		return r.bootstraps(ctx)
	})
}

func (r *stepRun) referenceLogprobs(ctx context.Context, mb *MicroBatch) error {
	if r.reference == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	logprobs, err := r.config.Reference.Logprobs(&mb.Batch)
	if err != nil {
		return fmt.Errorf("the reference policy: %w", err)
	}
	if len(logprobs) != len(mb.Rows) {
		return fmt.Errorf("the reference policy returned %d logprobs for %d tokens", len(logprobs), len(mb.Rows))
	}
	if err := r.checkFinite(mb, logprobs, "the reference's logprob"); err != nil {
		return err
	}
	r.keep(mb, logprobs, r.reference)
	return nil
}

// bootstraps computes the value of the state after the last token of each truncated trajectory. The row that predicts a
// token appended there stands in that state.
func (r *stepRun) bootstraps(ctx context.Context) error {
	r.bootstrap = make([]float64, len(r.units))
	if r.values == nil {
		return nil
	}
	var items []PackItem
	var units []int
	for u, unit := range r.units {
		if !unit.truncated || !r.mine(u) {
			continue
		}
		last := r.items[unit.items[len(unit.items)-1]]
		s := trajectory.Sample{Media: last.Sample.Media}
		s.AppendObservation(last.Sample.TokenIDs)
		if err := s.AppendResponse([]int32{0}, []float32{0}, []int32{0}); err != nil {
			return err
		}
		items = append(items, PackItem{Sample: &s, Group: unit.group, Name: unit.name})
		units = append(units, u)
	}
	o := r.config.packOptions(r.config.Temperature)
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
		n, err := r.numbers(&batches[i].Batch, true)
		if err != nil {
			return err
		}
		for j, row := range batches[i].Rows {
			r.bootstrap[units[row.Item]] = float64(n.values[j])
		}
	}
	return nil
}
