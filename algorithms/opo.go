package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "opo",
	Formula: "A = r - Σ l_i r_i / Σ l_i over the group, l_i the trajectory's response tokens",
	Source:  "arXiv 2505.23585",
	Notes:   []string{groupNote},
	New:     func(Settings) (Estimator, error) { return opo{}, nil },
})

// opo has the baseline of least variance where the gradient's norm grows with the length.
type opo struct{}

func (opo) Advantages(groups []Group) ([][][]float64, error) {
	return eachGroup(groups, func(g Group) []float64 {
		out, sum, tokens := rewardsOf(g), 0.0, 0.0
		for i, r := range g {
			sum += float64(r.Tokens) * out[i]
			tokens += float64(r.Tokens)
		}
		equal := allEqual(out)
		for i := range out {
			out[i] -= sum / tokens
			if equal {
				out[i] = 0
			}
		}
		return out
	}), nil
}
