package orchestrator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// call runs a turn's calls at once and returns their results in order, parse errors last. before is how many calls the trajectory asked for in
// earlier turns.
func (r *Rollout) call(ctx context.Context, id string, parsed agents.Parsed, before int) []trajectory.ToolResult {
	results := make([]trajectory.ToolResult, len(parsed.Calls))
	var all sync.WaitGroup
	for i, c := range parsed.Calls {
		refuse := func(cause trajectory.Cause, format string, args ...any) {
			results[i] = trajectory.ToolResult{Call: c, Observation: "Error: " + fmt.Sprintf(format, args...), Failed: true, Cause: cause}
		}
		switch {
		case r.ToolsOff:
			refuse(trajectory.CauseOff, "the tool is not available")
		case r.MaxCalls > 0 && before+i >= r.MaxCalls:
			refuse(trajectory.CauseLimit, "the task allows %d calls, this one did not run", r.MaxCalls)
		case r.MaxAtOnce > 0 && i >= r.MaxAtOnce:
			refuse(trajectory.CauseLimit, "a turn allows %d calls, this one did not run; write it again in the next turn", r.MaxAtOnce)
		default:
			all.Go(func() { results[i] = r.Tools.Invoke(ctx, id, c) })
		}
	}
	all.Wait()
	return append(results, parsed.Failures()...)
}

// conclude makes the observation of a terminal tool the final answer; of several, the first.
func conclude(t *trajectory.Turn) {
	if i := slices.IndexFunc(t.Results, func(r trajectory.ToolResult) bool { return r.Terminal }); i >= 0 {
		t.FinalAnswer, t.AnsweredThisTurn = t.Results[i].Observation, true
	}
}

// countCalls adds a turn to the metrics tools/* of a step.
func countCalls(metrics map[string]float64, t trajectory.Turn) {
	for _, name := range []string{"calls", "failed", "unknown", "bad_arguments", "parse_errors", "broken", "retries", "cached"} {
		metrics["tools/"+name] += 0 // every step has all of them
	}
	metrics["seconds/tools"] += 0
	metrics["tools/calls"] += float64(len(t.Results) - t.ParseErrors)
	metrics["tools/parse_errors"] += float64(t.ParseErrors)
	for _, r := range t.Results {
		if r.Failed {
			metrics["tools/failed"]++
		}
		switch r.Cause {
		case trajectory.CauseUnknownTool:
			metrics["tools/unknown"]++
		case trajectory.CauseBadArguments:
			metrics["tools/bad_arguments"]++
		case trajectory.CauseBroken:
			metrics["tools/broken"]++
		}
		if r.Cached {
			metrics["tools/cached"]++
		}
		metrics["tools/retries"] += float64(r.Retries)
		metrics["seconds/tools"] += r.Duration.Seconds()
	}
}

// panicked is the note of the first panic of a tool, with the line where it happened.
func panicked(err error, trace []byte) string {
	at := panics.Place(trace)
	if at == "" {
		return err.Error()
	}
	return fmt.Sprintf("%v, at %s; further ones are counted in tools/broken", err, at)
}

// leftOver says which tools still run calls that nobody waits for; "": none.
func leftOver(r *tools.Registry) string {
	if r == nil {
		return ""
	}
	calls := r.Abandoned()
	if len(calls) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, calls[name]))
	}
	return "calls are still running that ignored their deadline (" + strings.Join(parts, ", ") + "); these tools must honour ctx"
}
