//go:build torch

package algorithms

import "github.com/wangkuiyi/gotorch"

type gspo struct{ low, high float64 }

func newGSPO(s Settings) (Loss, error) { return gspo{s.ClipLow, s.ClipHigh}, nil }

func (gspo) Name() string { return "gspo" }

// PerToken is ppo_clip's formula with sg[s] · π/sg[π] in place of the ratio: s in value, with the gradient of the token.
func (l gspo) PerToken(in LossInput) (gotorch.Tensor, error) {
	ratio := in.Mul(in.Sequence, in.Exp(in.Sub(in.Current, in.Detach(in.Current))))
	clipped := in.Clamp(ratio, 1-l.low, 1+l.high)
	return in.Neg(in.Minimum(in.Mul(ratio, in.Advantage), in.Mul(clipped, in.Advantage))), in.Err()
}
