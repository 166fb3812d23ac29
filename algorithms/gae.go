package algorithms

import "errors"

var _ = declareEstimator(EstimatorSpec{
	Name:    "gae",
	Formula: "δ_t = r_t + gamma * V_next - V_t, Â_t = δ_t + gamma * lambda * Â_next over response tokens; A = (Â - mean) / sqrt(var + 1e-8) over the batch's tokens, var with n - 1",
	Source:  "arXiv 1506.02438, 1707.06347",
	Keys:    []Key{{"gamma", 1.0, "discount of a token"}, {"lambda", 0.95, "between one step (0) and the whole return (1)"}},
	Notes:   []string{rewardNote, "V_next is the value at the next response token; after the last, 0 where the trajectory finished and the value of the state after it where it was truncated"},
	Needs:   Needs{Turns: true, Values: true},
	New: func(s Settings) (Estimator, error) {
		return gae{s.Float("gamma"), s.Float("lambda")}, errors.Join(s.between("gamma", 0, 1), s.between("lambda", 0, 1))
	},
})

type gae struct{ gamma, lambda float64 }

var _ Critic = gae{}

// estimate is Â [L], before whitening.
func (e gae) estimate(r Record) []float64 {
	out, rewards := make([]float64, r.Tokens), r.tokenRewards()
	value, next := r.Bootstrap, 0.0
	for t := r.Tokens - 1; t >= 0; t-- {
		next = rewards[t] + e.gamma*value - r.Values[t] + e.gamma*e.lambda*next
		out[t], value = next, r.Values[t]
	}
	return out
}

func (e gae) Advantages(groups []Group) ([][][]float64, error) {
	out := eachTrajectory(groups, e.estimate)
	whiten(out)
	return out, nil
}

// Returns are Â + V, the TD(λ) returns.
func (e gae) Returns(groups []Group) ([][][]float64, error) {
	return eachTrajectory(groups, func(r Record) []float64 {
		out := e.estimate(r)
		for t := range out {
			out[t] += r.Values[t]
		}
		return out
	}), nil
}
