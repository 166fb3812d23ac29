package main

import "github.com/agentfly/agentfly/algorithms"

// ratioLoss is importance-weighted policy gradient without clipping.
type ratioLoss struct{}

func (ratioLoss) Name() string { return "ratio" }

// PerToken is -ρA with ρ = exp(current - old).
func (ratioLoss) PerToken(in algorithms.LossInput) (algorithms.Tensor, error) {
	ratio := in.Exp(in.Sub(in.Current, in.Old))
	return in.Neg(in.Mul(ratio, in.Advantage)), in.Err()
}

func ratioSpec() algorithms.LossSpec {
	return algorithms.LossSpec{
		Name:       "ratio",
		Formula:    "loss_t = -ρA, ρ = exp(current - old)",
		ZeroAtZero: true,
		New:        func(algorithms.Settings) (algorithms.Loss, error) { return ratioLoss{}, nil },
	}
}
