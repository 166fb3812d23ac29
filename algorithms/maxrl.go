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
			if m/scaleOf(rewards) <= rounding { // also a mean of 0 that misses it by rounding
				return make([]float64, len(out))
			}
			for i := range out {
				out[i] /= m
			}
			return out
		}), nil
	},
})
