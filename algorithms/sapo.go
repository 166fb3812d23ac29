package algorithms

import "errors"

var _ = declareLoss(LossSpec{
	Name:       "sapo",
	Formula:    "loss_t = -A * (4/τ) * σ(τ(ρ - 1)), ρ = exp(current - old), τ = tau_positive for A > 0 and tau_negative for A < 0",
	Source:     "arXiv 2511.20347",
	ZeroAtZero: true,
	Keys:       []Key{{"tau_positive", 1.0, "sharpness of the gate for A > 0"}, {"tau_negative", 1.05, "sharpness of the gate for A < 0"}},
	Check: func(s Settings) error {
		if !(s.Float("tau_positive") > 0) || !(s.Float("tau_negative") > 0) {
			return errors.New("tau_positive and tau_negative must be above 0")
		}
		return nil
	},
	ClipNote: func(Settings, *Algorithm) []string {
		return []string{"none; a soft gate, the sigmoid, in its place"}
	},
	New: func(s Settings) (Loss, error) { return sapo{s.Float("tau_positive"), s.Float("tau_negative")}, nil },
})

type sapo struct{ positive, negative float64 }

func (sapo) Name() string { return "sapo" }

// PerToken is -A · (4/τ) · σ(τ(ρ - 1)) with τ by the sign of A.
func (l sapo) PerToken(in LossInput) (Tensor, error) {
	away := in.Affine(in.Exp(in.Sub(in.Current, in.Old)), 1, -1)
	gate := func(tau float64) Tensor {
		return in.Affine(in.Sigmoid(in.Affine(away, tau, 0)), 4/tau, 0)
	}
	negative := in.LT(in.Advantage, in.Affine(in.Advantage, 0, 0))
	return in.Neg(in.Mul(in.Where(negative, gate(l.negative), gate(l.positive)), in.Advantage)), in.Err()
}
