package main

import (
	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
)

// The losses themselves compute with libtorch: loss_torch.go. A program without it checks jobs that name them, and cannot train.
var newLosses = []agentfly.Option{
	agentfly.WithLoss(algorithms.LossSpec{
		Name: "scaled", Formula: "loss_t = -scale * ρA, ρ = exp(current - old)", ZeroAtZero: true,
		Keys: []algorithms.Key{{Name: "scale", Default: 1.0, Doc: "factor"}},
		New:  func(s algorithms.Settings) (algorithms.Loss, error) { return newRatio("scaled", s.Float("scale")) },
	}),
	agentfly.WithLossFactory("ratio", "loss_t = -ρA, ρ = exp(current - old)", func(algorithms.Settings) (algorithms.Loss, error) { return newRatio("ratio", 1) }),
}
