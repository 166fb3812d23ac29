package algorithms

var _ = declareLoss(LossSpec{
	Name:       "reinforce",
	Formula:    "loss_t = -A * current",
	Source:     "Williams 1992",
	ZeroAtZero: true,
	IgnoresOld: true,
	New:        func(Settings) (Loss, error) { return reinforce{}, nil },
})

type reinforce struct{}

func (reinforce) Name() string { return "reinforce" }

// PerToken is -A * current.
func (reinforce) PerToken(in LossInput) (Tensor, error) {
	return in.Neg(in.Mul(in.Advantage, in.Current)), in.Err()
}
