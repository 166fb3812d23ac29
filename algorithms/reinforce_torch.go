//go:build torch

package algorithms

import "github.com/wangkuiyi/gotorch"

type reinforce struct{}

func newReinforce(Settings) (Loss, error) { return reinforce{}, nil }

func (reinforce) Name() string { return "reinforce" }

// PerToken is -A * current.
func (reinforce) PerToken(in LossInput) (gotorch.Tensor, error) {
	return in.Neg(in.Mul(in.Advantage, in.Current)), in.Err()
}
