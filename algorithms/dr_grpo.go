package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "dr_grpo",
	Formula: "A = r - mean over the group (its paper's loss denominator is aggregation seq-mean-token-sum-norm, set separately)",
	Source:  "arXiv 2503.20783",
	Notes:   []string{groupNote},
	New:     func(Settings) (Estimator, error) { return perTrajectory(centred), nil },
})
