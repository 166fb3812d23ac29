package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "rloo",
	Formula: "A = (r - mean) * n/(n - 1) over the group: the reward minus the mean of the others'; a group of one gives 0",
	Source:  "arXiv 2402.14740",
	Notes:   []string{groupNote},
	New: func(Settings) (Estimator, error) {
		return perTrajectory(leaveOneOut), nil
	},
})

// leaveOneOut returns v minus the mean of the others. v holds two values or more.
func leaveOneOut(v []float64) []float64 {
	out := centred(v)
	n := float64(len(out))
	for i := range out {
		out[i] *= n / (n - 1)
	}
	return out
}
