//go:build torch

package algorithms

import (
	"fmt"
	"math"

	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/cgo"
)

// LossInput is what a loss sees of a micro-batch: one row for each loss-mask token, in the order of the packing. Tensors
// are float32 [N] on the model's device; only Current carries gradient.
type LossInput struct {
	*Ops
	Current   gotorch.Tensor // log-probability under the policy that is trained
	Old       gotorch.Tensor // under the policy before the batch's first step (the sampling logprobs with correction bypass)
	Sampling  gotorch.Tensor // from the engine
	Advantage gotorch.Tensor //
}

// Loss is the policy term of an update. PerToken returns the loss of every row, [N], from in's operations; the caller
// weighs and sums it, multiplies corrections, and adds KL and entropy. Rows must not mix: row i of the result depends on
// row i of the input alone. PerToken runs on the trainer's worker; it keeps nothing, and its error or panic fails the
// step. The tensors of in are freed after it.
type Loss interface {
	Name() string
	PerToken(in LossInput) (gotorch.Tensor, error)
}

// Objective computes the loss of one micro-batch, Σ_t w_t (correction_t·policy_t + coefficient·kl_t - entropy·H_t), as
// a scalar tensor with history that the caller closes. current is [N] with history; entropy is [N] or the zero Tensor,
// and needed for an entropy bonus. m says on which device, nil is the CPU. Neither tensor is closed.
func (a *Algorithm) Objective(m *cgo.Model, loss Loss, current, entropy gotorch.Tensor, r Rows) (gotorch.Tensor, error) {
	return a.objective(&Ops{}, m, loss, current, entropy, r)
}

func (a *Algorithm) objective(o *Ops, m *cgo.Model, loss Loss, current, entropy gotorch.Tensor, r Rows) (gotorch.Tensor, error) {
	n := len(r.Weight)
	if len(r.Old) != n || len(r.Sampling) != n || len(r.Advantage) != n || a.klInLoss() && len(r.Reference) != n {
		return gotorch.Tensor{}, fmt.Errorf("algorithms: rows are not parallel: %d weights, %d old, %d sampling, %d advantages, %d reference",
			n, len(r.Old), len(r.Sampling), len(r.Advantage), len(r.Reference))
	}
	var total gotorch.Tensor
	defer func() { o.close(total) }()
	if a.Correction.Kind == CorrectionBypass {
		r.Old = r.Sampling
	}
	current, entropy, r = o.unmask(m, current, entropy, r)
	in := LossInput{Ops: o, Current: current, Old: o.floats(m, r.Old), Sampling: o.floats(m, r.Sampling), Advantage: o.floats(m, r.Advantage)}
	if o.err != nil {
		return gotorch.Tensor{}, o.err
	}
	policy, err := loss.PerToken(in)
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
	corrected := make([]float64, n)
	for i, w := range r.Weight {
		if w != 0 {
			corrected[i] = w * a.Correction.Weight(r.Old[i], r.Sampling[i])
		}
	}
	sum := o.MaskedSum(policy, o.floats(m, corrected))
	if a.klInLoss() {
		sum = o.Add(sum, o.Affine(o.MaskedSum(a.klTokens(o, current, o.floats(m, r.Reference)), o.floats(m, r.Weight)), a.KL.Coefficient, 0))
	}
	if a.Entropy > 0 {
		if entropy.T == nil {
			return gotorch.Tensor{}, fmt.Errorf("algorithms: an entropy bonus needs the entropy of the forward")
		}
		sum = o.Add(sum, o.Affine(o.MaskedSum(entropy, o.floats(m, r.Weight)), -a.Entropy, 0))
	}
	if o.err != nil {
		return gotorch.Tensor{}, fmt.Errorf("algorithms: loss %s: %w", loss.Name(), o.err)
	}
	total = sum
	return total, nil
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

func (a *Algorithm) klInLoss() bool { return a.KL.Coefficient > 0 && a.KL.In == "loss" }

// klTokens returns k2 or k3 of current against the reference, [N].
func (a *Algorithm) klTokens(o *Ops, current, reference gotorch.Tensor) gotorch.Tensor {
	k1 := o.Sub(current, reference)
	if a.KL.Estimator == "k2" {
		return o.Affine(o.Mul(k1, k1), 0.5, 0)
	}
	return o.Affine(o.Add(o.Exp(o.Neg(k1)), k1), 1, -1)
}

// unmask replaces what stands in rows of weight 0, numbers and tensors, by 0 before any function sees it: the gradient of
// exp at infinity is not 0 even where its result is multiplied by 0.
func (o *Ops) unmask(m *cgo.Model, current, entropy gotorch.Tensor, r Rows) (gotorch.Tensor, gotorch.Tensor, Rows) {
	masked := false
	for _, w := range r.Weight {
		masked = masked || w == 0
	}
	if !masked {
		return current, entropy, r
	}
	clean := func(v []float64) []float64 {
		if v == nil {
			return nil
		}
		out := make([]float64, len(v))
		for i := range v {
			if r.Weight[i] != 0 {
				out[i] = v[i]
			}
		}
		return out
	}
	weight, zero := o.floats(m, r.Weight), o.floats(m, make([]float64, len(r.Weight)))
	on := o.Maximum(o.LT(weight, zero), o.GT(weight, zero))
	current = o.Where(on, current, zero)
	if entropy.T != nil {
		entropy = o.Where(on, entropy, zero)
	}
	return current, entropy, Rows{Old: clean(r.Old), Sampling: clean(r.Sampling), Advantage: clean(r.Advantage), Weight: r.Weight, Reference: clean(r.Reference)}
}

// NewLoss makes the loss that the block names.
func (a *Algorithm) NewLoss() (Loss, error) {
	l, err := a.Loss.New(a.LossSettings)
	if err != nil {
		return nil, fmt.Errorf("algorithms: loss %s: %w", a.Loss.Name, err)
	}
	return l, nil
}
