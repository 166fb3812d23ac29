package main

import (
	"slices"

	"github.com/agentfly/agentfly/algorithms"
)

// median is an advantage estimator: A = scale * (r - the median reward of the group), the same for each response token.
type median struct{ scale float64 }

// Advantages returns [group][trajectory][token].
func (m median) Advantages(groups []algorithms.Group) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		var rewards []float64
		for _, r := range group {
			rewards = append(rewards, r.Reward)
		}
		slices.Sort(rewards)
		n := len(rewards)
		middle := (rewards[(n-1)/2] + rewards[n/2]) / 2
		for _, r := range group {
			out[g] = append(out[g], slices.Repeat([]float64{m.scale * (r.Reward - middle)}, r.Tokens))
		}
	}
	return out, nil
}

func medianSpec() algorithms.EstimatorSpec {
	return algorithms.EstimatorSpec{
		Name: "median", Formula: "A = scale * (r - median of the group's rewards)", Source: "this module",
		Keys: []algorithms.Key{{Name: "scale", Default: 1.0, Doc: "factor"}},
		New:  func(s algorithms.Settings) (algorithms.Estimator, error) { return median{s.Float("scale")}, nil },
	}
}
