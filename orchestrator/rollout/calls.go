package rollout

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/trajectory"
)

// call runs a turn's calls at once and returns their results in order, parse errors last. before is how many calls the trajectory asked for in
// earlier turns. Calls that act in the environment come one after the other, in their order; so do those of stateful tools in a tree, where a fork makes
// them again.
func (r *Sampler) call(ctx context.Context, p Place, parsed agents.Parsed, before int) []trajectory.ToolResult {
	id := p.ID()
	results := make([]trajectory.ToolResult, len(parsed.Calls))
	var all sync.WaitGroup
	var actions []int // calls that come one after the other
	for i, c := range parsed.Calls {
		refuse := func(cause trajectory.Cause, format string, args ...any) {
			results[i].Call = c
			results[i].Fail(cause, "Error: "+fmt.Sprintf(format, args...))
		}
		switch {
		case r.ToolsOff:
			refuse(trajectory.CauseOff, "the tool is not available")
		case r.MaxCalls > 0 && before+i >= r.MaxCalls:
			refuse(trajectory.CauseLimit, "the task allows %d calls, this one did not run", r.MaxCalls)
		case r.MaxAtOnce > 0 && i >= r.MaxAtOnce:
			refuse(trajectory.CauseLimit, "a turn allows %d calls, this one did not run; write it again in the next turn", r.MaxAtOnce)
		case r.World.acts(c), p.tree != nil && r.Tools.Stateful(c.Name):
			actions = append(actions, i)
		default:
			all.Go(func() { results[i] = r.Tools.Invoke(ctx, id, c) })
		}
	}
	all.Go(func() {
		for _, i := range actions {
			results[i] = r.Tools.Invoke(ctx, id, parsed.Calls[i])
		}
	})
	all.Wait()
	return append(results, parsed.Failures()...)
}

// redo makes the calls of a recorded turn again, so that stateful tools have the state that they had after it. What did not run then does not run now.
// It fails with a *changedError where a tool answers differently.
func (r *Sampler) redo(ctx context.Context, p Place, was *trajectory.Turn, turn int) error {
	if r.Tools == nil || p.tree == nil {
		return nil
	}
	for i := range was.Results {
		then := &was.Results[i]
		if then.Outcome != nil || !then.Cause.Ran() || !r.Tools.Stateful(then.Call.Name) {
			continue
		}
		now := r.Tools.Invoke(ctx, p.ID(), then.Call)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if withoutAddresses(now.Observation) != withoutAddresses(then.Observation) || now.Failed != then.Failed || !bytes.Equal(now.Info, then.Info) {
			return &failure{trajectory.OriginTool, &changedError{fmt.Sprintf("orchestrator: %s turn %d: its tool %s answers %q, and %q was recorded", p.ID(), turn, then.Call.Name, clip(now.Observation), clip(then.Observation))}}
		}
	}
	return nil
}

// addresses are those of objects, as Python prints them: they differ from process to process and say nothing of the state.
var addresses = regexp.MustCompile(`\b0x[0-9a-f]{6,16}\b`)

func withoutAddresses(s string) string { return addresses.ReplaceAllLiteralString(s, "0x") }

// conclude makes the observation of a terminal tool the final answer; of several, the first.
func conclude(t *trajectory.Turn) {
	if i := slices.IndexFunc(t.Results, func(r trajectory.ToolResult) bool { return r.Terminal }); i >= 0 {
		t.FinalAnswer, t.AnsweredThisTurn = t.Results[i].Observation, true
	}
}
