//go:build torch

package trainer

import (
	"context"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
)

// rowBuilder makes the numbers that go with the tensors of micro-batches: what the loss of each row reads beside the policy's logprob.
type rowBuilder struct {
	plan       *plan
	algorithm  *algorithms.Algorithm
	tally      *tally
	sequence   map[int]float64 // gspo's s of trajectories that several micro-batches share, by unit
	correction [][]float64     // [item][T] weights that depend on whole trajectories; nil until computed
}

// rows are the numbers that go with the tensors of a micro-batch.
func (r *rowBuilder) rows(micro *MicroBatch, now numbers, mb miniBatch) algorithms.Rows {
	a, n := r.algorithm, len(micro.Rows)
	current := make([]float64, n)
	rows := algorithms.Rows{Sampling: make([]float64, n), Weight: make([]float64, n), Advantage: pick(micro, r.plan.advantage), ValueWeight: mb.value}
	for i, row := range micro.Rows {
		current[i] = float64(now.logprobs[i])
		rows.Sampling[i] = float64(r.plan.items[row.Item].Sample.SamplingLogprobs[row.Token])
		rows.Weight[i] = mb.weight[r.plan.unitOf[row.Item]]
	}
	old := pick(micro, r.plan.old)
	if a.Correction.Active() {
		rows.Correction = r.corrections(micro, old, rows.Sampling)
	}
	rows.Old = old
	if a.OldIsCurrent() { // to the bit, also where old came from a forward of its own
		rows.Old = current
	}
	if a.NeedsReference() {
		rows.Reference = pick(micro, r.plan.reference)
	}
	if a.HasCritic() {
		rows.OldValue, rows.Return = pick(micro, r.plan.values), pick(micro, r.plan.returns)
		for i, v := range now.values {
			r.tally.ValueLoss += mb.value * a.Value.Loss(float64(v), rows.OldValue[i], rows.Return[i])
		}
	}
	base := rows.Old
	if a.Correction.Kind == algorithms.CorrectionBypass {
		base = rows.Sampling
	}
	if a.Loss.NeedsSequence {
		rows.Sequence = r.ratios(micro, current, base)
	}
	r.tally.observe(a, rows, current, base)
	return rows
}

// corrections are the weights of the rows' policy terms. Those that depend on a whole trajectory are computed once, from
// old and sampling logprobs of all its samples.
func (r *rowBuilder) corrections(micro *MicroBatch, old, sampling []float64) []float64 {
	c := r.algorithm.Correction
	if !c.PerSequence() {
		return c.Weights(old, sampling)
	}
	if r.correction == nil {
		r.correction = make([][]float64, len(r.plan.items))
	}
	for _, row := range micro.Rows {
		if r.correction[row.Item] == nil {
			u := r.plan.units[r.plan.unitOf[row.Item]]
			r.plan.scatter(u, c.Weights(r.plan.gather(u, r.plan.old), r.plan.sampling(u)), r.correction)
		}
	}
	return pick(micro, r.correction)
}

// ratios are gspo's s of the rows' trajectories at the current weights. One that lies in this micro-batch alone is
// computed from its forward; s of the others is known from sequences.
func (r *rowBuilder) ratios(micro *MicroBatch, current, base []float64) []float64 {
	type pair struct{ current, base []float64 }
	whole := map[int]*pair{}
	for i, row := range micro.Rows {
		u := r.plan.unitOf[row.Item]
		if whole[u] == nil {
			whole[u] = &pair{}
		}
		whole[u].current, whole[u].base = append(whole[u].current, current[i]), append(whole[u].base, base[i])
	}
	s := map[int]float64{}
	for u, p := range whole {
		known, cut := r.sequence[u]
		if s[u] = known; !cut {
			s[u] = algorithms.SequenceRatio(p.current, p.base)
		}
	}
	out := make([]float64, len(micro.Rows))
	for i, row := range micro.Rows {
		out[i] = s[r.plan.unitOf[row.Item]]
	}
	return out
}

// sequences computes s of the trajectories that several micro-batches share, by a forward of those micro-batches at the
// current weights. s carries no gradient, so the numbers are all that the loss needs of it. Where old is current, s is 1.
func (r *rowBuilder) sequences(ctx context.Context, m *cgo.Model, together cgo.Neighbours, mb miniBatch) error {
	r.sequence = map[int]float64{}
	if !r.algorithm.Loss.NeedsSequence || r.algorithm.OldIsCurrent() {
		return nil
	}
	current := make([][]float64, len(r.plan.items))
	for i := range mb.train {
		micro := &mb.train[i]
		if !r.holds(micro, mb.cut) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		now, err := infer(m, &micro.Batch, together, false)
		if err != nil {
			return err
		}
		if err := r.plan.checkFinite(micro, now.logprobs, "the trainer's logprob"); err != nil {
			return err
		}
		r.plan.keep(micro, now.logprobs, current)
	}
	for u := range mb.cut {
		base := r.plan.sampling(r.plan.units[u])
		if r.algorithm.Correction.Kind != algorithms.CorrectionBypass {
			base = r.plan.gather(r.plan.units[u], r.plan.old)
		}
		r.sequence[u] = algorithms.SequenceRatio(r.plan.gather(r.plan.units[u], current), base)
	}
	return nil
}

// holds reports whether a micro-batch has rows of one of the units.
func (r *rowBuilder) holds(micro *MicroBatch, units map[int]bool) bool {
	for _, row := range micro.Rows {
		if units[r.plan.unitOf[row.Item]] {
			return true
		}
	}
	return false
}

// pick gathers the rows' numbers out of values [item][T].
func pick(micro *MicroBatch, values [][]float64) []float64 {
	out := make([]float64, len(micro.Rows))
	for i, row := range micro.Rows {
		out[i] = values[row.Item][row.Token]
	}
	return out
}
