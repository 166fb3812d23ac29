package session

import (
	"strings"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/tools"
)

// checkForks refuses trees of trajectories whose state cannot fork. Tools without state fork by themselves, others by making their calls again, if they
// say that this comes to the same; what a server keeps does not fork. An environment forks from the state that it keeps, or by doing again what was done,
// if it does the same again.
func checkForks(j *job.Job, chosen *tools.Registry, w *World) error {
	if j.Rollout.Tree == nil || chosen == nil {
		return nil
	}
	var stateful, write []string
	for _, spec := range chosen.Specs() {
		switch {
		case spec.Stateful && !spec.Replays:
			stateful = append(stateful, spec.Name)
		case spec.Writes:
			write = append(write, spec.Name)
		}
	}
	var wrong []error
	if len(stateful) > 0 {
		wrong = append(wrong, j.Fail("rollout.tree", "trajectories that fork need tools without state of their own, or that come to it again by the same calls, and these keep some: %s; leave them or the tree out", strings.Join(stateful, ", ")))
	}
	if len(write) > 0 {
		wrong = append(wrong, j.Fail("rollout.tree", "trajectories that fork share what a server keeps, and calls of these tools may change it, as their server does not say otherwise: %s; write stateful: false beside mcp or http if no call depends on earlier ones, or leave them or the tree out", strings.Join(write, ", ")))
	}
	if w != nil && !w.stage.Spec().Deterministic {
		wrong = append(wrong, j.Fail("rollout.tree", "trajectories that fork need an environment that does the same again, and kind %s does not say that it does; use another one, or leave the tree out", j.Environment.Kind))
	}
	return j.Collect(wrong...)
}

// checkMeasured refuses trees that branch by entropies of which the engine does not tell what they ask for; nil trees ask for none.
func checkMeasured(j *job.Job, trees *rollout.Trees, c engines.Capabilities) error {
	if trees == nil || !trees.Measure {
		return nil
	}
	switch wanted := trees.Likeliest(); {
	case !c.TokenIDs:
		return j.Fail("rollout.tree.rule", "entropy reads logprobs of what was sampled, and the engine returns text alone (no capability TokenIDs); use step_random or another engine")
	case wanted <= c.Top:
		return nil
	case c.Top == 0:
		return j.Fail("rollout.tree.top", "%d: the engine does not tell the likeliest tokens (no capability Top); set top: 0, which estimates entropies by what was sampled", j.Rollout.Tree.Top)
	case j.Engine.Kind == "vllm":
		return j.Fail("rollout.tree.top", "%d: the vLLM server tells the %d likeliest tokens at most; start it with --max-logprobs %d, or set top: %d", j.Rollout.Tree.Top, c.Top, wanted+1, c.Top)
	}
	return j.Fail("rollout.tree.top", "%d: the engine tells the %d likeliest tokens at most (its capability Top); set top: %d", j.Rollout.Tree.Top, c.Top, c.Top)
}
