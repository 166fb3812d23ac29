package orchestrator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// ending is the error of a trajectory that must end the run, whatever rollout.max_failed says; nil: its failure is data.
func ending(t *trajectory.Trajectory) error {
	if t.StopReason != trajectory.StopCancelled && t.ErrOrigin.EndsRun() {
		return errors.New(t.Err)
	}
	return nil
}

// errorsOf counts the errors of a trajectory by origin: its own, and the calls whose tool broke, which the model is told.
func errorsOf(t *trajectory.Trajectory) map[trajectory.Origin]int {
	out := map[trajectory.Origin]int{}
	if t.Err != "" && t.StopReason != trajectory.StopCancelled {
		out[t.ErrOrigin]++
	}
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			if r.Cause == trajectory.CauseBroken {
				out[trajectory.OriginTool]++
			}
		}
	}
	return out
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
			for origin, n := range errorsOf(t) {
				r[errorsKey(origin)] += float64(n)
			}
		}
	}
}

// errorsKey is the metric of the errors with that origin.
func errorsKey(o trajectory.Origin) string { return "errors/" + string(o) }

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

// tooManyFailed holds the failed trajectories of a step or an evaluation against rollout.max_failed, and their broken tool
// calls against rollout.max_failed_tool.
func tooManyFailed(limits job.Rollout, what string, groups []trajectory.Group) error {
	all, failed, first := 0, 0, ""
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			all++
			if tr.Err == "" {
				continue
			}
			if failed++; first == "" {
				first = string(tr.ErrOrigin) + ": " + tr.Err
			}
		}
	}
	if all == 0 || float64(failed)/float64(all) <= limits.MaxFailed {
		return tooManyBroken(limits, what, groups)
	}
	return fmt.Errorf("orchestrator: %s: %d of %d trajectories failed, more than rollout.max_failed (%v); the first: %s", what, failed, all, limits.MaxFailed, first)
}

func tooManyBroken(limits job.Rollout, what string, groups []trajectory.Group) error {
	calls, broken, first := 0, 0, ""
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			for _, turn := range tr.Turns {
				calls += len(turn.Results) - turn.ParseErrors
				for _, r := range turn.Results {
					if r.Cause != trajectory.CauseBroken {
						continue
					}
					if broken++; first == "" {
						first = tr.ID + ": " + r.Observation
					}
				}
			}
		}
	}
	if calls == 0 || float64(broken)/float64(calls) <= limits.MaxFailedTool {
		return nil
	}
	return fmt.Errorf("orchestrator: %s: %d of %d tool calls broke, more than rollout.max_failed_tool (%v); the first: %s", what, broken, calls, limits.MaxFailedTool, first)
}
