package algorithms

var _ = declareEstimator(EstimatorSpec{
	Name:    "reinforce_pp",
	Formula: "G_t = r_t + gamma * G_next over response tokens; A = (G - mean) / sqrt(var + 1e-8) over the batch's tokens, var with n - 1; group_baseline first subtracts the group's mean return from the trajectory's reward",
	Source:  "arXiv 2501.03262",
	Keys:    []Key{{"gamma", 1.0, "discount of a token"}, {"group_baseline", false, "subtract the group's mean reward first"}},
	Notes:   []string{rewardNote, "exactly 0 for a batch whose returns are all equal"},
	Needs:   Needs{Turns: true},
	New: func(s Settings) (Estimator, error) {
		return reinforcePP{s.Float("gamma"), s.Bool("group_baseline")}, s.between("gamma", 0, 1)
	},
})

// rewardNote is what estimators with a reward for each token have in common.
const rewardNote = "the trajectory's reward sits on its last response token, a turn's reward on the last of its turn; observation tokens are passed through undiscounted"

type reinforcePP struct {
	gamma         float64
	groupBaseline bool
}

func (e reinforcePP) Advantages(groups []Group) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		centre := perTrajectory(centred).of(rewardsOf(group))
		for i, r := range group {
			if e.groupBaseline {
				r.Reward = centre[i] - r.paidByTurn() // so that all it is paid sums up to its centred return
			}
			out[g] = append(out[g], discounted(r.tokenRewards(), e.gamma))
		}
	}
	whiten(out)
	return out, nil
}
