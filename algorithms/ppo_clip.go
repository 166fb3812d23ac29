package algorithms

var _ = declareLoss(LossSpec{
	Name:        "ppo_clip",
	Formula:     "loss_t = -min(ρA, clip(ρ, 1 - clip_low, 1 + clip_high)A), ρ = exp(current - old); dual_clip c: for A < 0 min(that, -cA)",
	Source:      "arXiv 1707.06347; asymmetric: arXiv 2503.14476; dual clip: arXiv 1912.09729",
	UsesClipLow: true, UsesClipHigh: true, UsesDualClip: true,
	ClipLow: 0.2, ClipHigh: 0.2,
	ZeroAtZero: true,
	New:        func(s Settings) (Loss, error) { return ppoClip{s.ClipLow, s.ClipHigh, s.DualClip}, nil },
})

type ppoClip struct{ low, high, dual float64 }

func (ppoClip) Name() string { return "ppo_clip" }

// PerToken is -min(ρA, clip(ρ, 1 - low, 1 + high)A); with dual clip c, where A < 0, at most -cA.
func (l ppoClip) PerToken(in LossInput) (Tensor, error) {
	ratio := in.Exp(in.Sub(in.Current, in.Old))
	clipped := in.Clamp(ratio, 1-l.low, 1+l.high)
	loss := in.Neg(in.Minimum(in.Mul(ratio, in.Advantage), in.Mul(clipped, in.Advantage)))
	if l.dual > 0 {
		negative := in.LT(in.Advantage, in.Affine(in.Advantage, 0, 0))
		loss = in.Where(negative, in.Minimum(loss, in.Affine(in.Advantage, -l.dual, 0)), loss)
	}
	return loss, in.Err()
}
