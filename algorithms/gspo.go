package algorithms

func gspoSpec() LossSpec {
	return LossSpec{
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
		New: newGSPO,
	}
}
