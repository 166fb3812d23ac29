//go:build torch

package algorithms

import (
	"errors"
	"fmt"
	"math"

	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/panics"
)

// Outputs are what the forward of a micro-batch gives, [N] with history: Current always, the others where the algorithm
// needs them.
type Outputs struct {
	Current gotorch.Tensor // log-probability of the row's token
	Entropy gotorch.Tensor // of the row's distribution
	Values  gotorch.Tensor // the critic's value of the state that predicts the row's token
}

// Objective computes the loss of one micro-batch, Σ_t w_t (correction_t·policy_t + coefficient·kl_t - entropy·H_t) plus the
// critic's loss, as a scalar tensor with history that the caller closes. m says on which device, nil is the CPU. The
// tensors of f are not closed.
func (a *Algorithm) Objective(m *cgo.Model, loss Loss, f Outputs, r Rows) (gotorch.Tensor, error) {
	return a.objective(&Ops{}, m, loss, f, r)
}

// checkParallel verifies that what the algorithm reads of the rows is there.
func (a *Algorithm) checkParallel(r Rows) error {
	for _, f := range []struct {
		name   string
		values []float64
		needed bool
	}{
		{"old", r.Old, true},
		{"sampling", r.Sampling, true},
		{"advantage", r.Advantage, true},
		{"reference", r.Reference, a.KL.inLoss()},
		{"sequence", r.Sequence, a.Loss.NeedsSequence},
		{"correction", r.Correction, a.Correction.Active()},
		{"old value", r.OldValue, a.HasCritic()},
		{"return", r.Return, a.HasCritic()},
	} {
		if f.needed && len(f.values) != len(r.Weight) {
			return fmt.Errorf("algorithms: rows are not parallel: %d weights, but %d of %s", len(r.Weight), len(f.values), f.name)
		}
	}
	return nil
}

func (a *Algorithm) objective(o *Ops, m *cgo.Model, loss Loss, f Outputs, r Rows) (gotorch.Tensor, error) {
	if err := a.checkParallel(r); err != nil {
		return gotorch.Tensor{}, err
	}
	var total gotorch.Tensor
	defer func() { o.close(total) }()
	if a.Correction.Kind == CorrectionBypass {
		r.Old = r.Sampling
	}
	f, r = unmask(o, m, f, r)
	in := LossInput{Ops: o, Current: f.Current, Old: o.floats(m, r.Old), Sampling: o.floats(m, r.Sampling), Advantage: o.floats(m, r.Advantage)}
	if a.Loss.NeedsSequence {
		in.Sequence = o.floats(m, r.Sequence)
	}
	if o.err != nil {
		return gotorch.Tensor{}, o.err
	}
	policy, err := panics.Value("its PerToken", func() (gotorch.Tensor, error) { return loss.PerToken(in) })
	if err == nil {
		err = o.err
	}
	if err != nil {
		return gotorch.Tensor{}, fmt.Errorf("algorithms: loss %s: %w", loss.Name(), err)
	}
	if policy.T == nil {
		return gotorch.Tensor{}, fmt.Errorf("algorithms: loss %s returned no tensor", loss.Name())
	}
	if err := checkRows(policy, r.Weight); err != nil {
		return gotorch.Tensor{}, fmt.Errorf("algorithms: loss %s: %w", loss.Name(), err)
	}
	sum, err := a.sum(o, m, policy, f, r)
	if err == nil {
		err = o.err
	}
	if err != nil {
		return gotorch.Tensor{}, fmt.Errorf("algorithms: loss %s: %w", loss.Name(), err)
	}
	total = sum
	return total, nil
}

// sum weighs the policy term and adds the others.
func (a *Algorithm) sum(o *Ops, m *cgo.Model, policy gotorch.Tensor, f Outputs, r Rows) (gotorch.Tensor, error) {
	corrected := r.Weight
	if a.Correction.Active() {
		corrected = make([]float64, len(r.Weight))
		for i, w := range r.Weight {
			corrected[i] = w * r.Correction[i]
		}
	}
	sum := o.MaskedSum(policy, o.floats(m, corrected))
	if a.KL.inLoss() {
		sum = o.Add(sum, o.Affine(o.MaskedSum(a.KL.tokens(o, f.Current, o.floats(m, r.Reference)), o.floats(m, r.Weight)), a.KL.Coefficient, 0))
	}
	if a.Entropy > 0 {
		if f.Entropy.T == nil {
			return gotorch.Tensor{}, fmt.Errorf("an entropy bonus needs the entropy of the forward")
		}
		sum = o.Add(sum, o.Affine(o.MaskedSum(f.Entropy, o.floats(m, r.Weight)), -a.Entropy, 0))
	}
	if a.HasCritic() {
		if f.Values.T == nil {
			return gotorch.Tensor{}, fmt.Errorf("a critic needs the values of the forward")
		}
		sum = o.Add(sum, a.Value.sum(o, m, f.Values, r))
	}
	return sum, nil
}

// checkRows reads the policy term and reports the first row of the loss mask that is not finite.
func checkRows(policy gotorch.Tensor, weight []float64) error {
	values, err := cgo.Read(policy)
	if err != nil {
		return err
	}
	if len(values) != len(weight) {
		return fmt.Errorf("it returned %d values for %d rows", len(values), len(weight))
	}
	for i, v := range values {
		if x := float64(v); weight[i] != 0 && (math.IsNaN(x) || math.IsInf(x, 0)) {
			return &RowError{Row: i, Value: x}
		}
	}
	return nil
}

// sum is coefficient · ½ Σ_t w max((V - R)², (V_old + clip(V - V_old, ±c) - R)²), w = 1 / tokens of the mini-batch.
func (s ValueSettings) sum(o *Ops, m *cgo.Model, values gotorch.Tensor, r Rows) gotorch.Tensor {
	weight := make([]float64, len(r.Weight))
	for i, w := range r.Weight {
		if w != 0 {
			weight[i] = r.ValueWeight
		}
	}
	target, old := o.floats(m, r.Return), o.floats(m, r.OldValue)
	free := o.Sub(values, target)
	near := o.Sub(o.Add(old, o.Clamp(o.Sub(values, old), -s.Clip, s.Clip)), target)
	worst := o.Maximum(o.Mul(free, free), o.Mul(near, near))
	return o.Affine(o.MaskedSum(worst, o.floats(m, weight)), s.Coefficient/2, 0)
}

// tokens returns k2 or k3 of current against the reference, [N].
func (k KL) tokens(o *Ops, current, reference gotorch.Tensor) gotorch.Tensor {
	k1 := o.Sub(current, reference)
	if k.Estimator == "k2" {
		return o.Affine(o.Mul(k1, k1), 0.5, 0)
	}
	return o.Affine(o.Add(o.Exp(o.Neg(k1)), k1), 1, -1)
}

// unmask replaces what stands in rows of weight 0, numbers and tensors, by 0 before any function sees it: the gradient of
// exp at infinity is not 0 even where its result is multiplied by 0.
func unmask(o *Ops, m *cgo.Model, f Outputs, r Rows) (Outputs, Rows) {
	masked := false
	for _, w := range r.Weight {
		masked = masked || w == 0
	}
	if !masked {
		return f, r
	}
	for _, v := range []*[]float64{&r.Old, &r.Sampling, &r.Advantage, &r.Reference, &r.Sequence, &r.Correction, &r.OldValue, &r.Return} {
		if *v == nil {
			continue
		}
		clean := make([]float64, len(*v))
		for i := range clean {
			if i < len(r.Weight) && r.Weight[i] != 0 {
				clean[i] = (*v)[i]
			}
		}
		*v = clean
	}
	weight, zero := o.floats(m, r.Weight), o.floats(m, make([]float64, len(r.Weight)))
	on := o.Maximum(o.LT(weight, zero), o.GT(weight, zero))
	for _, t := range []*gotorch.Tensor{&f.Current, &f.Entropy, &f.Values} {
		if t.T != nil {
			*t = o.Where(on, *t, zero)
		}
	}
	return f, r
}

// NewLoss makes the loss that the block names.
func (l *ResolvedLoss) NewLoss() (Loss, error) {
	loss, err := panics.Value("its New", func() (Loss, error) { return l.New(l.Settings) })
	if err == nil && loss == nil {
		err = errors.New("its New returned no loss")
	}
	if err != nil {
		return nil, fmt.Errorf("algorithms: loss %s: %w", l.Name, err)
	}
	return loss, nil
}

// inLoss tells whether the penalty is a term of the loss.
func (k KL) inLoss() bool { return k.Coefficient > 0 && k.In == "loss" }
