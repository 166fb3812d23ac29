package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "remax",
	Formula: "A = r - reward of a greedy rollout of the same task by the same policy version",
	Source:  "arXiv 2310.10505",
	Notes:   []string{"one greedy rollout more per group, which is not trained on; where it failed, its group is left out"},
	Needs:   Needs{Greedy: true},
	New:     func(Settings) (Estimator, error) { return reMax{}, nil },
})

type reMax struct{}

func (reMax) Advantages(groups []Group) ([][][]float64, error) {
	return eachGroup(groups, func(g Group) []float64 {
		out := rewardsOf(g)
		for i, r := range g {
			out[i] -= *r.Greedy
		}
		return out
	}), nil
}
