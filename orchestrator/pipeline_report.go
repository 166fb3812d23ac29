package orchestrator

import (
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/schedule"
)

// overlaps tells whether rollouts go on beside updates.
func (t *run) overlaps() bool { return t.job.Rollout.Mode == "async" || t.job.Rollout.Oversample > 1 }

// addLengths adds how many tokens the trained trajectories sampled, those of them that an earlier step had left behind because
// they had not ended, and those that were given up: if a mode favoured short ones, the second would be few, or the third long.
func addLengths(r map[string]float64, b *schedule.Batch) {
	var all, cut []float64
	for g, group := range b.Trained {
		for i, tr := range group.Trajectories {
			if tr.Err != "" {
				continue
			}
			n := float64(tr.ResponseTokens())
			all = append(all, n)
			if g < len(b.Cut) && b.Cut[g][i] {
				cut = append(cut, n)
			}
		}
	}
	r["trajectories/cut"] = float64(len(cut))
	var dropped []float64
	for _, n := range b.Lost {
		dropped = append(dropped, float64(n))
	}
	for name, v := range map[string][]float64{"trained": all, "cut": cut, "dropped": dropped} {
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		r["length/"+name+"_mean"], r["length/"+name+"_max"] = mean(v), v[len(v)-1]
		r["length/"+name+"_p50"], r["length/"+name+"_p90"] = v[(len(v)-1)/2], v[(len(v)-1)*9/10]
	}
}

// overlap is what a step's line of progress says of rollouts beside the update.
func (t *run) overlap(r map[string]float64) string {
	if !t.overlaps() {
		return ""
	}
	out := fmt.Sprintf("  stale %.1f (%.0f)  waited %.1f s  length %.0f", r["update/staleness_mean"], r["update/staleness_max"], r["seconds/wait"], r["length/trained_mean"])
	if r["trajectories/cut"] > 0 {
		out += fmt.Sprintf(" (%.0f cut before: %.0f)", r["trajectories/cut"], r["length/cut_mean"])
	}
	return out
}
