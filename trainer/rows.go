//go:build torch

package trainer

import (
	"context"
	"math"

	"github.com/agentfly/agentfly/algorithms"
)

// rows are the numbers that go with the tensors of a micro-batch.
func (r *stepRun) rows(micro *MicroBatch, now numbers, mb miniBatch) algorithms.Rows {
	a, n := r.algorithm, len(micro.Rows)
	current := make([]float64, n)
	rows := algorithms.Rows{Sampling: make([]float64, n), Weight: make([]float64, n), Advantage: r.pick(micro, r.advantage), ValueWeight: mb.value}
	for i, row := range micro.Rows {
		current[i] = float64(now.logprobs[i])
		rows.Sampling[i] = float64(r.items[row.Item].Sample.SamplingLogprobs[row.Token])
		rows.Weight[i] = mb.weight[r.unitOf[row.Item]]
	}
	old := r.pick(micro, r.old)
	if a.Correction.Active() {
		rows.Correction = r.corrections(micro, old, rows.Sampling)
	}
	rows.Old = old
	if a.OldIsCurrent() { // to the bit, also where old came from a forward of its own
		rows.Old = current
	}
	if a.NeedsReference() {
		rows.Reference = r.pick(micro, r.reference)
	}
	if a.HasCritic() {
		rows.OldValue, rows.Return = r.pick(micro, r.values), r.pick(micro, r.returns)
		for i, v := range now.values {
			r.metrics.ValueLoss += mb.value * a.Value.Loss(float64(v), rows.OldValue[i], rows.Return[i])
		}
	}
	base := rows.Old
	if a.Correction.Kind == algorithms.CorrectionBypass {
		base = rows.Sampling
	}
	if a.Loss.NeedsSequence {
		rows.Sequence = r.ratios(micro, current, base)
	}
	r.observe(rows, current, base)
	return rows
}

// observe counts what the loss and the correction hold back.
func (r *stepRun) observe(rows algorithms.Rows, current, base []float64) {
	for i := range current {
		t := algorithms.Token{Current: current[i], Old: base[i], Sampling: rows.Sampling[i], Advantage: rows.Advantage[i]}
		if rows.Sequence != nil {
			t.Sequence = rows.Sequence[i]
		}
		if r.algorithm.Loss.HoldsBack(t) {
			r.clipped++
		}
		if rows.Correction != nil && rows.Correction[i] == 0 {
			r.dropped++
		}
	}
	r.passed += len(current)
}

// pick gathers the rows' numbers out of values [item][T].
func (r *stepRun) pick(micro *MicroBatch, values [][]float64) []float64 {
	out := make([]float64, len(micro.Rows))
	for i, row := range micro.Rows {
		out[i] = values[row.Item][row.Token]
	}
	return out
}

// corrections are the weights of the rows' policy terms. Those that depend on a whole trajectory are computed once, from
// old and sampling logprobs of all its samples.
func (r *stepRun) corrections(micro *MicroBatch, old, sampling []float64) []float64 {
	c := r.algorithm.Correction
	if !c.PerSequence() {
		return c.Weights(old, sampling)
	}
	if r.correction == nil {
		r.correction = make([][]float64, len(r.items))
	}
	for _, row := range micro.Rows {
		if r.correction[row.Item] == nil {
			u := r.units[r.unitOf[row.Item]]
			r.scatter(u, c.Weights(r.gather(u, r.old), r.sampling(u)), r.correction)
		}
	}
	return r.pick(micro, r.correction)
}

// ratios are gspo's s of the rows' trajectories at the current weights. One that lies in this micro-batch alone is
// computed from its forward; s of the others is known from sequences.
func (r *stepRun) ratios(micro *MicroBatch, current, base []float64) []float64 {
	type pair struct{ current, base []float64 }
	whole := map[int]*pair{}
	for i, row := range micro.Rows {
		u := r.unitOf[row.Item]
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
		out[i] = s[r.unitOf[row.Item]]
	}
	return out
}

// sequences computes s of the trajectories that several micro-batches share, by a forward of those micro-batches at the
// current weights. s carries no gradient, so the numbers are all that the loss needs of it. Where old is current, s is 1.
func (r *stepRun) sequences(ctx context.Context, mb miniBatch) error {
	r.sequence = map[int]float64{}
	if !r.algorithm.Loss.NeedsSequence || r.algorithm.OldIsCurrent() {
		return nil
	}
	current := make([][]float64, len(r.items))
	for i := range mb.train {
		micro := &mb.train[i]
		if !r.holds(micro, mb.cut) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		now, err := r.numbers(&micro.Batch, false)
		if err != nil {
			return err
		}
		if err := r.checkFinite(micro, now.logprobs, "the trainer's logprob"); err != nil {
			return err
		}
		r.keep(micro, now.logprobs, current)
	}
	for u := range mb.cut {
		base := r.sampling(r.units[u])
		if r.algorithm.Correction.Kind != algorithms.CorrectionBypass {
			base = r.gather(r.units[u], r.old)
		}
		r.sequence[u] = algorithms.SequenceRatio(r.gather(r.units[u], current), base)
	}
	return nil
}

// holds reports whether a micro-batch has rows of one of the units.
func (r *stepRun) holds(micro *MicroBatch, units map[int]bool) bool {
	for _, row := range micro.Rows {
		if units[r.unitOf[row.Item]] {
			return true
		}
	}
	return false
}

// sampling are the sampling logprobs [L] of a trajectory.
func (r *stepRun) sampling(u unit) []float64 {
	out := make([]float64, 0, u.tokens)
	for _, i := range u.items {
		s := r.items[i].Sample
		for t, on := range s.ResponseMask {
			if on {
				out = append(out, float64(s.SamplingLogprobs[t]))
			}
		}
	}
	return out
}

// finishCritic completes the metrics that need a reference or a critic.
func (r *stepRun) finishCritic() {
	m := &r.metrics
	if m.OptimizerSteps > 0 {
		m.ValueLoss /= float64(m.OptimizerSteps)
	}
	var old, reference, errors, returns []float64
	for _, u := range r.units {
		if r.reference != nil {
			old, reference = append(old, r.gather(u, r.old)...), append(reference, r.gather(u, r.reference)...)
		}
		if r.values != nil {
			target := r.gather(u, r.returns)
			returns = append(returns, target...)
			for t, v := range r.gather(u, r.values) {
				errors = append(errors, target[t]-v)
			}
		}
	}
	m.KL = r.algorithm.KL.Mean(old, reference)
	if v := variance(returns); v > 0 {
		m.Explained = 1 - variance(errors)/v
	}
}

func variance(v []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	if len(v) == 0 || math.IsNaN(sum) {
		return 0
	}
	return sum / float64(len(v))
}
