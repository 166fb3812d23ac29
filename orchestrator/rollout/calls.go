package rollout

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/trajectory"
)

// call runs a turn's calls at once and returns their results in order, parse errors last. before is how many calls the trajectory asked for in
// earlier turns.
func (r *Sampler) call(ctx context.Context, id string, parsed agents.Parsed, before int) []trajectory.ToolResult {
	results := make([]trajectory.ToolResult, len(parsed.Calls))
	var all sync.WaitGroup
	var actions []int // calls that act in the environment: one after the other, in their order
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
		case r.World.acts(c):
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

// conclude makes the observation of a terminal tool the final answer; of several, the first.
func conclude(t *trajectory.Turn) {
	if i := slices.IndexFunc(t.Results, func(r trajectory.ToolResult) bool { return r.Terminal }); i >= 0 {
		t.FinalAnswer, t.AnsweredThisTurn = t.Results[i].Observation, true
	}
}
