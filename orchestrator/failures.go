package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// errorOrigins are where errors come from. A trajectory fails by engine, environment, reward or render; a tool that breaks (its
// deadline passed, or it panicked) fails a call, which the model is told.
var errorOrigins = [...]string{"engine", "environment", "render", "reward", "tool"}

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
	for _, origin := range errorOrigins {
		if n := int(record["errors/"+origin]); n > 0 {
			if s.Errors == nil {
				s.Errors = map[string]int{}
			}
			s.Errors[origin] += n
		}
	}
}

// tooManyFailed holds the failed trajectories of a step against rollout.max_failed, and its broken tool calls against
// rollout.max_failed_tool.
func (t *run) tooManyFailed(step int, groups []trajectory.Group) error {
	all, failed, first := 0, 0, ""
	calls, broken, firstTool := 0, 0, ""
	origins := map[string]int{}
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			all++
			for _, turn := range tr.Turns {
				calls += len(turn.Results) - turn.ParseErrors
				for _, r := range turn.Results {
					if !r.Broken {
						continue
					}
					if broken++; firstTool == "" {
						firstTool = tr.ID + ": " + r.Observation
					}
				}
			}
			if tr.Err == "" {
				continue
			}
			origins[tr.ErrOrigin]++
			if failed++; first == "" {
				first = tr.ErrOrigin + ": " + tr.Err
			}
		}
	}
	if float64(failed)/float64(all) > t.job.Rollout.MaxFailed {
		return fmt.Errorf("orchestrator: step %d: %d of %d trajectories failed%s, more than rollout.max_failed (%v); the first: %s", step, failed, all, shown(origins), t.job.Rollout.MaxFailed, first)
	}
	if calls > 0 && float64(broken)/float64(calls) > t.job.Rollout.MaxFailedTool {
		return fmt.Errorf("orchestrator: step %d: %d of %d tool calls broke, more than rollout.max_failed_tool (%v); the first: %s", step, broken, calls, t.job.Rollout.MaxFailedTool, firstTool)
	}
	return nil
}

// shown lists the origins where there are several.
func shown(origins map[string]int) string {
	if len(origins) < 2 {
		return ""
	}
	var out []string
	for _, origin := range slices.Sorted(maps.Keys(origins)) {
		out = append(out, fmt.Sprintf("%s %d", origin, origins[origin]))
	}
	return " (" + strings.Join(out, ", ") + ")"
}
