package orchestrator

import (
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/trajectory"
)

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

// countErrors adds errors/ORIGIN of some groups to the metrics of a step. What ends the run is none of them: there is no such step.
func countErrors(r map[string]float64, groups []trajectory.Group) {
	for _, origin := range trajectory.Origins() {
		if !origin.EndsRun() {
			r[errorsKey(origin)] = 0
		}
	}
	for _, g := range groups {
		for _, t := range g.Trajectories {
			for origin, n := range rollout.ErrorsOf(t) {
				r[errorsKey(origin)] += float64(n)
			}
		}
	}
}

// errorsKey is the metric of the errors with that origin.
func errorsKey(o trajectory.Origin) string { return "errors/" + string(o) }
