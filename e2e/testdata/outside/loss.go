package main

import (
	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
)

// A program without libtorch checks jobs that name these losses, and cannot train with them.
var newLosses = []agentfly.Option{
	agentfly.WithLoss(algorithms.LossSpec{
		Name: "scaled", Formula: "loss_t = -scale * ρA, ρ = exp(current - old)", ZeroAtZero: true,
		Keys: []algorithms.Key{{Name: "scale", Default: 1.0, Doc: "factor"}},
		New:  func(s algorithms.Settings) (algorithms.Loss, error) { return ratio{"scaled", s.Float("scale")}, nil },
	}),
	agentfly.WithLossFactory("ratio", "loss_t = -ρA, ρ = exp(current - old)", func(algorithms.Settings) (algorithms.Loss, error) { return ratio{"ratio", 1}, nil }),
}

type ratio struct {
	name  string
	scale float64
}

func (r ratio) Name() string { return r.name }

// PerToken is one value for each row.
func (r ratio) PerToken(in algorithms.LossInput) (algorithms.Tensor, error) {
	rho := in.Exp(in.Sub(in.Current, in.Old))
	return in.Affine(in.Mul(rho, in.Advantage), -r.scale, 0), in.Err()
}
