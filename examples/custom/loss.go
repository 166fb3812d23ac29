//go:build torch

package main

import (
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
)

// ratioLoss is importance-weighted policy gradient without clipping.
type ratioLoss struct{}

func (ratioLoss) Name() string { return "ratio" }

// PerToken is -ρA with ρ = exp(current - old).
func (ratioLoss) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	ratio := in.Exp(in.Sub(in.Current, in.Old))
	return in.Neg(in.Mul(ratio, in.Advantage)), in.Err()
}

func losses() []agentfly.Option {
	return []agentfly.Option{agentfly.WithLoss(algorithms.LossSpec{
		Name:       "ratio",
		Formula:    "loss_t = -ρA, ρ = exp(current - old)",
		ZeroAtZero: true,
		New:        func(algorithms.Settings) (algorithms.Loss, error) { return ratioLoss{}, nil },
	})}
}
