//go:build torch

package algorithms

import "github.com/wangkuiyi/gotorch"

type sapo struct{ positive, negative float64 }

func newSAPO(s Settings) (Loss, error) {
	return sapo{s.Float("tau_positive"), s.Float("tau_negative")}, nil
}

func (sapo) Name() string { return "sapo" }

// PerToken is -A · (4/τ) · σ(τ(ρ - 1)) with τ by the sign of A.
func (l sapo) PerToken(in LossInput) (gotorch.Tensor, error) {
	away := in.Affine(in.Exp(in.Sub(in.Current, in.Old)), 1, -1)
	gate := func(tau float64) gotorch.Tensor {
		return in.Affine(in.Sigmoid(in.Affine(away, tau, 0)), 4/tau, 0)
	}
	negative := in.LT(in.Advantage, in.Affine(in.Advantage, 0, 0))
	return in.Neg(in.Mul(in.Where(negative, gate(l.negative), gate(l.positive)), in.Advantage)), in.Err()
}
