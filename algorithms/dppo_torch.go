//go:build torch

package algorithms

import "github.com/wangkuiyi/gotorch"

type dppo struct{ delta float64 }

func newDPPO(s Settings) (Loss, error) { return dppo{s.Float("delta")}, nil }

func (dppo) Name() string { return "dppo" }

// PerToken is -ρA, 0 where π - μ > delta and A > 0, or π - μ < -delta and A < 0.
func (l dppo) PerToken(in LossInput) (gotorch.Tensor, error) {
	zero := in.Affine(in.Advantage, 0, 0)
	change := in.Detach(in.Sub(in.Exp(in.Current), in.Exp(in.Sampling)))
	loss := in.Neg(in.Mul(in.Exp(in.Sub(in.Current, in.Old)), in.Advantage))
	loss = in.Where(in.GT(change, in.Affine(zero, 1, l.delta)), in.Where(in.GT(in.Advantage, zero), zero, loss), loss)
	return in.Where(in.LT(change, in.Affine(zero, 1, -l.delta)), in.Where(in.LT(in.Advantage, zero), zero, loss), loss), in.Err()
}
