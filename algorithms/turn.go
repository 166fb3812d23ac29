package algorithms

import (
	"fmt"
	"math"
)

var _ = declareEstimator(EstimatorSpec{
	Name:    "turn",
	Formula: "A = the credit of the token's turn. identical: every turn gets R, the trajectory's reward r and the rewards of its turns; first_occurrence: each turn keeps its own reward, and r goes to the latest turn that has none; discounted: turn k of K gets gamma^(K-1-k) * R",
	Source:  "Agent Lightning, arXiv 2508.03680",
	Keys:    []Key{{"mode", "identical", "identical, first_occurrence or discounted"}, {"gamma", 0.95, "discount of a turn, with mode discounted"}},
	Notes:   []string{"no baseline is subtracted; identical and discounted read the turns' own rewards as part of R alone"},
	Needs:   Needs{Turns: true},
	New: func(s Settings) (Estimator, error) {
		credit, ok := turnCredits[s.String("mode")]
		if !ok {
			return nil, fmt.Errorf("mode is %q; allowed are identical, first_occurrence, discounted", s.String("mode"))
		}
		return turnCredit{s.Float("gamma"), credit}, s.between("gamma", 0, 1)
	},
})

// turnCredits are the modes: what each turn of a trajectory gets, [K].
var turnCredits = map[string]func(r Record, gamma float64) []float64{
	"identical": func(r Record, _ float64) []float64 {
		out := make([]float64, r.turns())
		for k := range out {
			out[k] = r.total()
		}
		return out
	},
	"first_occurrence": func(r Record, _ float64) []float64 {
		out, free := make([]float64, r.turns()), -1
		for k := range out {
			if k < len(r.TurnRewards) && r.TurnRewards[k] != nil {
				out[k] = *r.TurnRewards[k]
			} else {
				free = k
			}
		}
		if free >= 0 { // otherwise every turn has a reward, and the trajectory's finds none
			out[free] = r.Reward
		}
		return out
	},
	"discounted": func(r Record, gamma float64) []float64 {
		out := make([]float64, r.turns())
		for k := range out {
			out[k] = r.total() * math.Pow(gamma, float64(len(out)-1-k))
		}
		return out
	},
}

type turnCredit struct {
	gamma  float64
	credit func(Record, float64) []float64
}

func (e turnCredit) Advantages(groups []Group) ([][][]float64, error) {
	return eachTrajectory(groups, func(r Record) []float64 {
		credits, out := e.credit(r, e.gamma), make([]float64, r.Tokens)
		for t := range out {
			out[t] = credits[r.turnOf(t)]
		}
		return out
	}), nil
}
