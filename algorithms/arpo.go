package algorithms

import "fmt"

var _ = declareEstimator(EstimatorSpec{
	Name:    "arpo",
	Formula: "a_i = (r_i - mean) / (std + 1e-6) over the leaves of the task's tree, sample std. hard: A = a_i on a leaf's own tokens, the mean of a over the leaves through it on a shared token; soft: A = a_i on all tokens of the leaf",
	Source:  "arXiv 2507.19849",
	Keys:    []Key{{"mode", "hard", "hard or soft"}},
	Notes:   []string{groupNote, "each leaf is a trajectory that holds all tokens from the root, so a shared token is in the loss and in its denominators once for every leaf"},
	Needs:   Needs{Shared: true},
	New: func(s Settings) (Estimator, error) {
		mode := s.String("mode")
		if mode != "hard" && mode != "soft" {
			return nil, fmt.Errorf("mode is %q; allowed are hard, soft", mode)
		}
		return arpo{mode == "hard"}, nil
	},
})

type arpo struct{ hard bool }

func (e arpo) Advantages(groups []Group) ([][][]float64, error) {
	out, _ := perTrajectory(normalised).Advantages(groups)
	if !e.hard {
		return out, nil
	}
	for g, group := range groups {
		sum, leaves := map[string]float64{}, map[string]int{}
		for i, r := range group {
			seen := map[string]bool{}
			for t, name := range r.Shared {
				if name != "" && !seen[name] {
					seen[name] = true
					sum[name] += out[g][i][t]
					leaves[name]++
				}
			}
		}
		for i, r := range group {
			for t, name := range r.Shared {
				if leaves[name] > 1 {
					out[g][i][t] = sum[name] / float64(leaves[name])
				}
			}
		}
	}
	return out, nil
}
