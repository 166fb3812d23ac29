package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// World is the environment that trajectories act in.
type World struct {
	Stage   *environments.Stage
	Retries int      // a trajectory whose environment failed begins anew so many times
	Data    []string // fields by which the job's data names a task and its answer, see environments.Start
	Job     []string // fields that the job reads beside the environment, see environments.Start
	Credit  float64  // by turn: the rewards of a turn's actions, times this, are the turn's; 0: they are part of the trajectory's reward
	// Forget drops what was recorded of a trajectory that begins anew, and tells why; nil: nothing is recorded.
	Forget func(id string, why error)
	// WentOn is told how the environment of a trajectory that a process before this one began came to where it was; nil: nobody is.
	WentOn func(id, how string)
}

// episodeSeed is the seed of a task's episode: of the task's own field seed where it has one, else from the run's seed and the task. It is the same
// for all trajectories of a task, and in all evaluations.
func episodeSeed(run uint64, p Place) (int64, error) {
	if v := p.Task.Fields["seed"]; v != nil {
		n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		if f, isFloat := v.(float64); isFloat && f == math.Trunc(f) {
			n, err = int64(f), nil
		}
		if err != nil || n < 0 || n > math.MaxInt32 {
			return 0, fmt.Errorf("task %q: the field seed is %v; it must be a whole number from 0 to %d", p.Task.ID, v, math.MaxInt32)
		}
		return n, nil
	}
	split := environments.Train
	if strings.HasPrefix(p.Phase, "eval") {
		split = environments.Eval
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%s", run, split, p.Task.ID)
	return int64(h.Sum64() & math.MaxInt32), nil
}

// start begins the episode of a trajectory, which the caller ends with Stage.End, and returns the text of what is observed first, with the name of
// the state.
func (w *World) start(ctx context.Context, run uint64, registry *tools.Registry, p Place, t *trajectory.Trajectory) (first, anchor string, err error) {
	seed, err := episodeSeed(run, p)
	if err != nil {
		return "", "", &failure{trajectory.OriginEnvironment, fmt.Errorf("orchestrator: %s: %w", p.ID(), err)}
	}
	task := p.Task
	task.Fields = maps.Clone(task.Fields) // the environment may write into them
	defer watchdog.Enter(ctx, "environment", p.ID()).Leave()
	e, err := w.Stage.Begin(ctx, pool.Owner{Group: p.group(), Name: t.ID}, environments.Start{Task: task, Seed: seed, Data: w.Data, Job: w.Job})
	if err != nil {
		return "", "", environmentFailed(ctx, p, err)
	}
	return registry.Cut(environments.TextOf(e.First())), e.Anchor(), nil
}

// environmentFailed is the failure of a trajectory whose environment broke.
func environmentFailed(ctx context.Context, p Place, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &failure{trajectory.OriginEnvironment, fmt.Errorf("orchestrator: %s: %w", p.ID(), err)}
}

// openingOf are the messages that precede the first completion: those of the job and the task, and what the environment shows first.
func openingOf(prefix []trajectory.Message, p Place, text string) []trajectory.Message {
	messages := slices.Concat(prefix, p.Task.Prompt)
	if text == "" {
		return messages
	}
	if n := len(messages) - 1; n >= len(prefix) && messages[n].Role == "user" { // chat templates want the roles to take turns
		messages[n].Content = slices.Clone(messages[n].Content) // the task's
		if k := len(messages[n].Content) - 1; k >= 0 && messages[n].Content[k].Type == "text" {
			messages[n].Content[k].Text += "\n\n" + text
			return messages
		}
		messages[n].Content = append(messages[n].Content, trajectory.Part{Type: "text", Text: text})
		return messages
	}
	return append(messages, trajectory.Text("user", text))
}

// acts tells whether a call acts in the environment.
func (w *World) acts(c trajectory.ToolCall) bool {
	return w != nil && w.Stage.Acts(c.Name)
}

// pay gives the turn what its actions earned, and the name of the state before it; first is that of the beginning.
func (w *World) pay(t *trajectory.Trajectory, turn *trajectory.Turn, first string) {
	turn.Anchor = first
	if last := t.LastOutcome(); last != nil {
		turn.Anchor = last.Anchor
	}
	if w.Credit == 0 {
		return
	}
	sum, acted := 0.0, false
	for _, result := range turn.Results {
		if result.Outcome != nil {
			sum, acted = sum+result.Outcome.Reward, true
		}
	}
	if sum *= w.Credit; acted {
		turn.Reward = &sum
	}
}

// over says why the environment ended the trajectory with a turn; "": it did not.
func over(turn *trajectory.Turn) trajectory.StopReason {
	for _, result := range turn.Results {
		switch o := result.Outcome; {
		case o == nil:
		case o.Terminated:
			return trajectory.StopTerminated
		case o.Truncated:
			return trajectory.StopTruncated
		}
	}
	return ""
}

// catchUp brings the environment to where it was after a recorded turn: from the state that was recorded with the turn's last action if the turn is
// the last that was recorded, else by acting again as recorded. It fails with a *changedError where the environment does not come to the same.
func (w *World) catchUp(ctx context.Context, registry *tools.Registry, p Place, t, recovered *trajectory.Trajectory, turn int) error {
	changed := func(format string, args ...any) error {
		return &failure{trajectory.OriginEnvironment, &changedError{fmt.Sprintf("orchestrator: %s turn %d: ", p.ID(), turn) + fmt.Sprintf(format, args...)}}
	}
	kept := recovered.LastOutcome()
	if kept != nil && kept.State != nil {
		if turn < len(recovered.Turns)-1 {
			return nil
		}
		if err := w.Stage.Restore(ctx, t.ID, kept.State); err != nil {
			return changed("its environment does not go on from the state that was recorded: %v", err)
		}
		return nil
	}
	for _, was := range recovered.Turns[turn].Results {
		if was.Outcome == nil {
			continue
		}
		if !w.Stage.Spec().Deterministic {
			return changed("its environment keeps no state, and does not do the same again")
		}
		is := registry.Invoke(ctx, t.ID, was.Call)
		if err := w.Stage.Failed(t.ID); err != nil {
			return environmentFailed(ctx, p, err)
		}
		if is.Observation != was.Observation || is.Outcome == nil || is.Outcome.Reward != was.Outcome.Reward || is.Outcome.Over() != was.Outcome.Over() {
			return changed("its environment answers %q, and %q was recorded", clip(is.Observation), clip(was.Observation))
		}
	}
	return nil
}

// wentOn tells how the environment came to where it was after the last recorded turn, where it acted in any. A branch of a tree, which begins with
// the turns of another trajectory, does not go on after an earlier process.
func (w *World) wentOn(p Place, t, recovered *trajectory.Trajectory, turn int) {
	if w.WentOn == nil || recovered == p.base() || turn < len(recovered.Turns)-1 {
		return
	}
	actions := 0
	for _, was := range recovered.Turns {
		for _, result := range was.Results {
			if result.Outcome != nil {
				actions++
			}
		}
	}
	switch kept := recovered.LastOutcome(); {
	case kept == nil:
	case kept.State != nil:
		w.WentOn(t.ID, fmt.Sprintf("its environment was taken to the state that was recorded after action %d", actions))
	default:
		w.WentOn(t.ID, fmt.Sprintf("its environment did the recorded actions again (%d), and answered the same", actions))
	}
}

func clip(text string) string { return wording.Clip(strings.Join(strings.Fields(text), " "), 80) }

// opening is what a trajectory begins with.
type opening struct {
	messages []trajectory.Message
	anchor   string // names the environment's state; "" without one
}

// retries tells whether a trajectory that ended with err begins anew: because what was recorded of it cannot go on, or because its environment
// failed and tries are left. A task that no environment takes is not tried again.
func (w *World) retries(err error, recovered bool, tries *int) bool {
	changed, wrong := (*changedError)(nil), (*environments.TaskError)(nil)
	switch {
	case w == nil || err == nil || errors.As(err, &wrong):
		return false
	case errors.As(err, &changed):
		return recovered
	case !environmentBroke(err):
		return false
	}
	*tries++
	return *tries <= w.Retries
}

// wait waits until a pool whose environments cannot be made tries again.
func (w *World) wait(ctx context.Context, err error) error {
	open := (*pool.OpenError)(nil)
	if !errors.As(err, &open) {
		return nil
	}
	return retry.Pause(ctx, open.Retry)
}

// environmentBroke tells whether a trajectory ended because its environment failed, or cannot be brought to where it was.
func environmentBroke(err error) bool {
	f := (*failure)(nil)
	return errors.As(err, &f) && f.origin == trajectory.OriginEnvironment
}

// episode is what a reward may ask of the trajectory's environment.
type episode struct {
	stage *environments.Stage
	name  string
}

var _ rewards.Answerer = episode{}

func (e episode) Ask(ctx context.Context, op string, arguments json.RawMessage) (json.RawMessage, error) {
	return e.stage.Ask(ctx, e.name, op, arguments)
}

func (e episode) Score(ctx context.Context) (float64, bool, error) { return e.stage.Score(ctx, e.name) }
