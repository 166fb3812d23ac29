package algorithms

func ppoClipSpec() LossSpec {
	return LossSpec{
		Name:        "ppo_clip",
		Formula:     "loss_t = -min(ρA, clip(ρ, 1 - clip_low, 1 + clip_high)A), ρ = exp(current - old); dual_clip c: for A < 0 min(that, -cA)",
		Source:      "arXiv 1707.06347; asymmetric: arXiv 2503.14476; dual clip: arXiv 1912.09729",
		UsesClipLow: true, UsesClipHigh: true, UsesDualClip: true,
		ClipLow: 0.2, ClipHigh: 0.2,
		ZeroAtZero: true,
		New:        newPPOClip,
	}
}
