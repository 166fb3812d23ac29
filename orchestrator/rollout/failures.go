package rollout

import (
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// Fatal is the error of a trajectory that must end the run, whatever rollout.max_failed says; nil: its failure is data.
func Fatal(t *trajectory.Trajectory) error {
	if t.StopReason != trajectory.StopCancelled && t.ErrOrigin.EndsRun() {
		return errors.New(t.Err)
	}
	return nil
}

// ErrorsOf counts the errors of a trajectory by origin: its own, and the calls whose tool broke, which the model is told.
func ErrorsOf(t *trajectory.Trajectory) map[trajectory.Origin]int {
	out := map[trajectory.Origin]int{}
	if t.Failed() && t.StopReason != trajectory.StopCancelled {
		out[t.ErrOrigin]++
	}
	for k, turn := range t.Turns {
		if !t.Owns(k) {
			continue
		}
		for _, r := range turn.Results {
			if r.Cause == trajectory.CauseBroken {
				out[trajectory.OriginTool]++
			}
		}
	}
	return out
}

// TooManyFailed holds the failed trajectories of a step or an evaluation against rollout.max_failed, and their broken tool
// calls against rollout.max_failed_tool.
func TooManyFailed(limits job.Rollout, what string, groups []trajectory.Group) error {
	all, failed, first := 0, 0, ""
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			all++
			if !tr.Failed() {
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
			for k, turn := range tr.Turns {
				if !tr.Owns(k) {
					continue
				}
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
