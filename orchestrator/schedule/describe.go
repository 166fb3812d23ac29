package schedule

import (
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
)

// Describe says how rollouts and updates share the time, for `agentfly job effective`.
func Describe(j *job.Job, a *algorithms.Algorithm) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key, fmt.Sprintf(format, args...))
	}
	r, l := j.Rollout, LimitsOf(j, a, 1)
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
	if r.Tree != nil {
		line("trees", "%s", r.Tree.Describe(r.GroupSize))
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
