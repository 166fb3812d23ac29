package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "maxrl",
	Formula: "A = (r - mean) / mean over the group, 0 where the mean is 0 or less",
	Source:  "arXiv 2602.02710",
	Notes:   []string{groupNote},
	New: func(Settings) (Estimator, error) {
		return perTrajectory(func(rewards []float64) []float64 {
			m := mean(rewards)
			out := centred(rewards)
			for i := range out {
				out[i] /= m
				if m <= 0 {
					out[i] = 0
				}
			}
			return out
		}), nil
	},
})
