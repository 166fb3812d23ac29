package main

import (
	"slices"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
)

var newEstimators = []agentfly.Option{
	agentfly.WithEstimator(algorithms.EstimatorSpec{
		Name: "above", Formula: "A = scale * (r - the least reward of the group)",
		Keys: []algorithms.Key{{Name: "scale", Default: 1.0, Doc: "factor"}},
		New:  func(s algorithms.Settings) (algorithms.Estimator, error) { return above{s.Float("scale")}, nil },
	}),
	agentfly.WithEstimatorFactory("least", "A = r - the least reward of the group", func(algorithms.Settings) (algorithms.Estimator, error) { return above{1}, nil }),
}

type above struct{ scale float64 }

// Advantages returns [group][trajectory][token].
func (a above) Advantages(groups []algorithms.Group) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		least := slices.MinFunc(group, func(x, y algorithms.Record) int {
			if x.Reward < y.Reward {
				return -1
			}
			return 1
		}).Reward
		for _, r := range group {
			out[g] = append(out[g], slices.Repeat([]float64{a.scale * (r.Reward - least)}, r.Tokens))
		}
	}
	return out, nil
}
