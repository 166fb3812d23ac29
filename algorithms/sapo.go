package algorithms

import "errors"

func sapoSpec() LossSpec {
	return LossSpec{
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
		New: newSAPO,
	}
}
