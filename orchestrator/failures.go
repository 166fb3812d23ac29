package orchestrator

import (
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// errorOrigins are where errors come from. A trajectory fails by agent (a format that somebody else wrote), engine,
// environment, reward or render; a tool that breaks (its
// deadline passed, or it panicked) fails a call, which the model is told.
var errorOrigins = [...]string{"agent", "engine", "environment", "render", "reward", "tool"}

// errorsOf counts the errors of a trajectory by origin.
func errorsOf(t *trajectory.Trajectory) map[string]int {
	out := map[string]int{}
	if t.Err != "" && t.StopReason != trajectory.StopCancelled {
		out[t.ErrOrigin]++
	}
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			if r.Broken {
				out["tool"]++
			}
		}
	}
	return out
}

// countErrors adds errors/ORIGIN of some groups to the metrics of a step.
func countErrors(r map[string]float64, groups []trajectory.Group) {
	for _, origin := range errorOrigins {
		r["errors/"+origin] = 0
	}
	for _, g := range groups {
		for _, t := range g.Trajectories {
			for origin, n := range errorsOf(t) {
				r["errors/"+origin] += float64(n)
			}
		}
	}
}

// addErrors counts those of a step in the run's.
func (s *state) addErrors(record map[string]float64) {
	for key, n := range record {
		if origin, ok := strings.CutPrefix(key, "errors/"); ok && n > 0 {
			if s.Errors == nil {
				s.Errors = map[string]int{}
			}
			s.Errors[origin] += int(n)
		}
	}
}

// tooManyBroken holds the broken tool calls of a step against rollout.max_failed_tool.
func (t *run) tooManyBroken(step int, groups []trajectory.Group) error {
	calls, broken, first := 0, 0, ""
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			for _, turn := range tr.Turns {
				calls += len(turn.Results) - turn.ParseErrors
				for _, r := range turn.Results {
					if !r.Broken {
						continue
					}
					if broken++; first == "" {
						first = tr.ID + ": " + r.Observation
					}
				}
			}
		}
	}
	if calls == 0 || float64(broken)/float64(calls) <= t.job.Rollout.MaxFailedTool {
		return nil
	}
	return fmt.Errorf("orchestrator: step %d: %d of %d tool calls broke, more than rollout.max_failed_tool (%v); the first: %s", step, broken, calls, t.job.Rollout.MaxFailedTool, first)
}
