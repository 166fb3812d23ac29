//go:build torch

package algorithms

import "github.com/wangkuiyi/gotorch"

type ppoClip struct{ low, high, dual float64 }

func newPPOClip(s Settings) (Loss, error) { return ppoClip{s.ClipLow, s.ClipHigh, s.DualClip}, nil }

func (ppoClip) Name() string { return "ppo_clip" }

// PerToken is -min(ρA, clip(ρ, 1 - low, 1 + high)A); with dual clip c, where A < 0, at most -cA.
func (l ppoClip) PerToken(in LossInput) (gotorch.Tensor, error) {
	ratio := in.Exp(in.Sub(in.Current, in.Old))
	clipped := in.Clamp(ratio, 1-l.low, 1+l.high)
	loss := in.Neg(in.Minimum(in.Mul(ratio, in.Advantage), in.Mul(clipped, in.Advantage)))
	if l.dual > 0 {
		negative := in.LT(in.Advantage, in.Affine(in.Advantage, 0, 0))
		loss = in.Where(negative, in.Minimum(loss, in.Affine(in.Advantage, -l.dual, 0)), loss)
	}
	return loss, in.Err()
}
