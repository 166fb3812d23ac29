package algorithms

func reinforceSpec() LossSpec {
	return LossSpec{
		Name:       "reinforce",
		Formula:    "loss_t = -A * current",
		Source:     "Williams 1992",
		ZeroAtZero: true,
		IgnoresOld: true,
		New:        newReinforce,
	}
}
