//go:build torch

package algorithms

import "github.com/wangkuiyi/gotorch"

type cispo struct{ limit float64 }

func newCISPO(s Settings) (Loss, error) { return cispo{cispoLimit(s)}, nil }

func (cispo) Name() string { return "cispo" }

// PerToken is -sg[clip(ρ, 0, limit)] · A · current.
func (l cispo) PerToken(in LossInput) (gotorch.Tensor, error) {
	weight := in.Detach(in.Clamp(in.Exp(in.Sub(in.Current, in.Old)), 0, l.limit))
	return in.Neg(in.Mul(in.Mul(weight, in.Advantage), in.Current)), in.Err()
}
