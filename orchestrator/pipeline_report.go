package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
)

// overlaps tells whether rollouts go on beside updates.
func (t *run) overlaps() bool { return t.job.Rollout.Mode == "async" || t.job.Rollout.Oversample > 1 }

// lengths adds how many tokens the trained trajectories sampled, those of them that an earlier step had left behind because
// they had not ended, and those that were given up: if a mode favoured short ones, the second would be few, or the third long.
func (b *batch) lengths(r map[string]float64) {
	var all, cut []float64
	for g, group := range b.trained {
		for i, tr := range group.Trajectories {
			if tr.Err != "" {
				continue
			}
			n := float64(tr.ResponseTokens())
			all = append(all, n)
			if g < len(b.cut) && b.cut[g][i] {
				cut = append(cut, n)
			}
		}
	}
	r["trajectories/cut"] = float64(len(cut))
	var dropped []float64
	for _, n := range b.lost {
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

// DescribeMode says how rollouts and updates share the time, for `agentfly job effective`.
func DescribeMode(j *job.Job, a *algorithms.Algorithm) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key, fmt.Sprintf(format, args...))
	}
	r, l := j.Rollout, limitsOf(j, a, 1)
	if l.rounds() {
		line("rollouts", "sync: a step samples its %d groups with its own policy version, waits for all of them, and trains", r.Groups)
	} else {
		when := "sync with over-sampling: once an update is done, groups begin until %d are outstanding"
		if r.Mode == "async" {
			when = "async: groups begin whenever fewer than %d are outstanding, those in training included"
		}
		line("rollouts", when+"; a step trains the first %d that end, the rest go on", l.Capacity, r.Groups)
		line("staleness", "at most %d policy versions between a trajectory's oldest sampled token and the version that trains it; a step adds up to %d", l.Staleness, l.Updates)
		what := "the step waits for it"
		if l.Drop {
			what = "it is dropped and its task sampled anew"
		}
		line("", "a group that no later step could train within that: %s (stale: %s)", what, r.Stale)
	}
	line("cut", "a completion that a token limit cut %s (rollout.cut: %s)", map[string]string{
		rollout.CutScore: "ends its trajectory, which the rewards score without an answer", rollout.CutZero: "ends its trajectory, whose reward is then 0",
		rollout.CutFilter: "ends its trajectory, which the update leaves out", rollout.CutParse: "counts as if the model had ended it",
	}[r.Cut], r.Cut)
	deadline := "none of its own"
	if r.Timeout > 0 {
		deadline = fmt.Sprintf("%v s", r.Timeout)
	}
	line("deadlines", "trajectory %s, completion %v s, tool call %v s", deadline, r.TurnTimeout, r.ToolTimeout)
	return b.String()
}
