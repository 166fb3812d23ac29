package algorithms

import (
	"errors"
	"fmt"
	"math"
)

var _ = declareEstimator(EstimatorSpec{
	Name:    "gigpo",
	Formula: "A = norm(r over the group, the rewards of turns included) + omega * norm(R_k over the group's turns with the same anchor), R_k = Σ_j gamma^j r_{k+j} by turn; norm is x - mean, divided by (sample std + 1e-6) with normalize: mean-std",
	Source:  "arXiv 2505.10978",
	Keys: []Key{
		{"omega", 1.0, "weight of the turns' advantage"},
		{"gamma", 0.95, "discount of a turn"},
		{"normalize", "mean-std", "mean or mean-std"},
	},
	Notes: []string{"exactly 0 for turns whose anchor no other turn of the group has, and where all are equal; a turn's anchor is the observation before it", rewardNote},
	Needs: Needs{Turns: true, Anchors: true},
	New: func(s Settings) (Estimator, error) {
		n := s.String("normalize")
		if n != "mean" && n != "mean-std" {
			return nil, fmt.Errorf("normalize is %q; allowed are mean, mean-std", n)
		}
		return giGPO{s.Float("omega"), s.Float("gamma"), grpo(n == "mean-std")}, errors.Join(s.between("omega", 0, math.Inf(1)), s.between("gamma", 0, 1))
	},
})

type giGPO struct {
	omega, gamma float64
	norm         perTrajectory
}

// place is a turn of a trajectory of a group.
type place struct{ trajectory, turn int }

func (e giGPO) Advantages(groups []Group) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		episode := e.norm.of(rewardsOf(group))
		turns := e.turns(group)
		for i, r := range group {
			values := make([]float64, r.Tokens)
			for t := range values {
				values[t] = episode[i] + e.omega*turns[place{i, r.turnOf(t)}]
			}
			out[g] = append(out[g], values)
		}
	}
	return out, nil
}

// turns is the advantage of every turn among those that began in the same state.
func (e giGPO) turns(group Group) map[place]float64 {
	type state struct {
		places  []place
		returns []float64
	}
	states := map[string]*state{}
	for i, r := range group {
		for k, value := range discounted(r.turnRewards(), e.gamma) {
			s := states[r.Anchors[k]]
			if s == nil {
				s = &state{}
				states[r.Anchors[k]] = s
			}
			s.places = append(s.places, place{i, k})
			s.returns = append(s.returns, value)
		}
	}
	out := map[place]float64{}
	for _, s := range states {
		for n, value := range e.norm.of(s.returns) {
			out[s.places[n]] = value
		}
	}
	return out
}

// turnRewards is r_k [K], with the trajectory's reward on the turn of its last token.
func (r Record) turnRewards() []float64 {
	out := make([]float64, r.turns())
	for k, reward := range r.TurnRewards {
		if reward != nil {
			out[k] = *reward
		}
	}
	out[r.turnOf(r.Tokens-1)] += r.Reward
	return out
}
