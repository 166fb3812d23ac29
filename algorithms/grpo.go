package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "grpo",
	Formula: "A = (r - mean) / (std + 1e-6) over the group, sample std (n - 1); normalize_std: false leaves the division out",
	Source:  "arXiv 2402.03300",
	Keys:    []Key{{"normalize_std", true, "divide by the group's standard deviation"}},
	Notes:   []string{groupNote},
	New: func(s Settings) (Estimator, error) {
		return grpo(s.Bool("normalize_std")), nil
	},
})

// groupNote is what estimators with a group baseline have in common.
const groupNote = "exactly 0 for a group whose rewards are all equal, and for a group of one; failed trajectories are left out of the group"

func grpo(normalize bool) perTrajectory {
	if normalize {
		return normalised
	}
	return centred
}
