package algorithms

import (
	"fmt"
	"math"
)

var _ = declareLoss(LossSpec{
	Name:         "dppo",
	Formula:      "loss_t = -ρA, ρ = exp(current - old), but 0 where π - μ > delta and A > 0 or π - μ < -delta and A < 0; π and μ are the token's probability now and when it was sampled",
	Source:       "arXiv 2602.04879",
	ZeroAtZero:   true,
	UsesSampling: true,
	Keys:         []Key{{"delta", 0.2, "largest change of a token's probability in the direction of its advantage"}},
	Check:        func(s Settings) error { return s.between("delta", 0, 1) },
	Clipped: func(s Settings, t Token) bool {
		change := math.Exp(t.Current) - math.Exp(t.Sampling)
		return t.Advantage > 0 && change > s.Float("delta") || t.Advantage < 0 && change < -s.Float("delta")
	},
	ClipNote: func(s Settings, _ *Algorithm) []string {
		return []string{fmt.Sprintf("no bound on the ratio; a token whose probability has moved by more than %.6g in the direction of its advantage is dropped and still counted in the denominator", s.Float("delta"))}
	},
	New: func(s Settings) (Loss, error) { return dppo{s.Float("delta")}, nil },
})

type dppo struct{ delta float64 }

func (dppo) Name() string { return "dppo" }

// PerToken is -ρA, 0 where π - μ > delta and A > 0, or π - μ < -delta and A < 0.
func (l dppo) PerToken(in LossInput) (Tensor, error) {
	zero := in.Affine(in.Advantage, 0, 0)
	change := in.Detach(in.Sub(in.Exp(in.Current), in.Exp(in.Sampling)))
	loss := in.Neg(in.Mul(in.Exp(in.Sub(in.Current, in.Old)), in.Advantage))
	loss = in.Where(in.GT(change, in.Affine(zero, 1, l.delta)), in.Where(in.GT(in.Advantage, zero), zero, loss), loss)
	return in.Where(in.LT(change, in.Affine(zero, 1, -l.delta)), in.Where(in.LT(in.Advantage, zero), zero, loss), loss), in.Err()
}
