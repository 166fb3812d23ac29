package algorithms

var _ = declareLoss(LossSpec{
	Name:        "gspo",
	Formula:     "loss_t = -min(sA, clip(s, 1 - clip_low, 1 + clip_high)A), s = exp(mean_t(current - old)) over the trajectory, with the gradient of sg[s] * π/sg[π]",
	Source:      "arXiv 2507.18071, token form",
	UsesClipLow: true, UsesClipHigh: true,
	ClipLow: 3e-4, ClipHigh: 4e-4,
	Only:          SeqMeanTokenMean,
	ZeroAtZero:    true,
	NeedsSequence: true,
	Clipped: func(s Settings, t Token) bool {
		return t.Advantage > 0 && t.Sequence > 1+s.ClipHigh || t.Advantage < 0 && t.Sequence < 1-s.ClipLow
	},
	New: func(s Settings) (Loss, error) { return gspo{s.ClipLow, s.ClipHigh}, nil },
})

type gspo struct{ low, high float64 }

func (gspo) Name() string { return "gspo" }

// PerToken is ppo_clip's formula with sg[s] · π/sg[π] in place of the ratio: s in value, with the gradient of the token.
func (l gspo) PerToken(in LossInput) (Tensor, error) {
	ratio := in.Mul(in.Sequence, in.Exp(in.Sub(in.Current, in.Detach(in.Current))))
	clipped := in.Clamp(ratio, 1-l.low, 1+l.high)
	return in.Neg(in.Minimum(in.Mul(ratio, in.Advantage), in.Mul(clipped, in.Advantage))), in.Err()
}
