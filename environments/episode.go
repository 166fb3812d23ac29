package environments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Episode is one episode of an environment, from its reset on, and the lease of that environment. Whoever got it from Manager.Begin ends it with
// End, whatever happened. Its methods are safe for concurrent use; those that ask the environment something wait for each other.
//
// An error of a method is a *Failure. Unless the environment was asked for a power and the caller gave up before it began, the environment is closed
// and replaced after it, and all later calls return a *Failure too; a reset that a [TaskError] refuses leaves the environment as it is.
type Episode struct {
	rules  *rules
	tenure *tenure // whose turn guards what follows

	first  Observation
	start  Start
	fresh  bool   // nothing was done since the reset
	last   Result // of a step; none: the zero Result
	anchor string // of the state
}

func newEpisode(t *tenure, s Start) *Episode { return &Episode{rules: t.rules, tenure: t, start: s} }

// First is what the reset showed.
func (e *Episode) First() Observation { return e.first }

// Anchor names the state of now: what the last result said of it, else a name made of the last observation. An action that was not possible for a
// reason that the environment was not asked about, such as an unknown tool, leaves it as it was.
func (e *Episode) Anchor() string {
	e.tenure.turn <- struct{}{}
	defer func() { <-e.tenure.turn }()
	return e.anchor
}

// Last is the result of the last step; the zero Result: there was none.
func (e *Episode) Last() Result {
	e.tenure.turn <- struct{}{}
	defer func() { <-e.tenure.turn }()
	return e.last
}

// End gives the environment back, once: it is closed instead where it failed or is in the middle of a call, which returns then. It is safe to call
// again, from any goroutine, and from a deferred call after a panic.
func (e *Episode) End() { e.tenure.end() }

// reset begins the episode.
func (e *Episode) reset(ctx context.Context, s Start) error {
	inner, err := e.tenure.enter(ctx, AskedReset)
	if err != nil {
		return err
	}
	defer e.tenure.leave()
	return e.resetNow(ctx, inner, s)
}

// resetNow is reset between enter and leave.
func (e *Episode) resetNow(ctx, inner context.Context, s Start) error {
	began := time.Now()
	o, err := power(ctx, inner, e.tenure, e.rules.o.ResetTimeout, AskedReset, func(ctx context.Context) (Observation, error) {
		o, err := e.tenure.mem.env.Reset(ctx, s)
		return o, blame(s.Task, err)
	})
	e.rules.count(func(c *counts) { c.resets.Add(time.Since(began)) })
	if err != nil {
		return err
	}
	if o, err = e.rules.accept(o); err != nil {
		return e.tenure.broken(ctx, AskedReset, err)
	}
	e.start, e.fresh, e.last, e.first = s, true, Result{}, o
	e.anchor = nameOf("", o)
	return nil
}

// Step acts. What is wrong with the action is a result with FailurePolicy, also after the end of the episode and for a tool that does not exist; an
// action of the tool "act" is a text. The observation is at most Options.MaxText long, and Anchor is never empty.
func (e *Episode) Step(ctx context.Context, a Action) (Result, error) {
	inner, err := e.tenure.enter(ctx, AskedStep)
	if err != nil {
		return Result{}, err
	}
	defer e.tenure.leave()
	return e.stepNow(ctx, inner, a)
}

// stepNow is Step between enter and leave.
func (e *Episode) stepNow(ctx, inner context.Context, a Action) (Result, error) {
	if e.last.Over() {
		r := e.refuse("The episode is over. No further action is possible.")
		r.Terminated, r.Truncated = e.last.Terminated, e.last.Truncated
		return r, nil
	}
	a, wrong := e.rules.check(a)
	if wrong != "" {
		return e.refuse(wrong), nil
	}
	began := time.Now()
	r, err := power(ctx, inner, e.tenure, e.rules.o.StepTimeout, AskedStep, func(ctx context.Context) (Result, error) { return e.tenure.mem.env.Step(ctx, a) })
	e.rules.count(func(c *counts) { c.steps.Add(time.Since(began)) })
	if err != nil {
		return Result{}, err
	}
	e.fresh = false
	if r.Failure == trajectory.FailurePolicy && r.Anchor == "" { // its text says what is wrong, and names no state
		r.Anchor, r.Success = e.anchor, r.Success || e.last.Success && !r.Over()
	}
	if r, err = e.rules.acceptResult(r); err != nil {
		return Result{}, e.tenure.broken(ctx, AskedStep, err)
	}
	e.anchor, e.last = r.Anchor, r
	return r, nil
}

// refuse is the result of an action that the environment is not asked to do.
func (e *Episode) refuse(text string) Result {
	return Result{Observation: Text(text), Anchor: e.anchor, Success: e.last.Success, Failure: trajectory.FailurePolicy}
}

// kept is the state of an episode.
type kept struct {
	State     json.RawMessage `json:"state"` // of the environment
	Anchor    string          `json:"anchor"`
	Over      bool            `json:"over,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // over by a limit of the environment's; older programs did not say so
	Success   bool            `json:"success,omitempty"`
}

// State keeps the episode for Restore. It is false where the environment cannot.
func (e *Episode) State(ctx context.Context) (json.RawMessage, bool, error) {
	s, ok := e.tenure.mem.env.(Stater)
	if !ok {
		return nil, false, nil
	}
	inner, err := e.tenure.enter(ctx, AskedState)
	if err != nil {
		return nil, true, err
	}
	defer e.tenure.leave()
	state, err := power(ctx, inner, e.tenure, e.rules.o.StepTimeout, AskedState, s.State)
	if err != nil {
		return nil, true, err
	}
	if !json.Valid(state) {
		return nil, true, e.tenure.broken(ctx, AskedState, errors.New("it returned no JSON value as its state; mend the environment"))
	}
	out, err := json.Marshal(kept{state, e.anchor, e.last.Over(), e.last.Truncated, e.last.Success})
	if err != nil {
		return nil, true, e.tenure.broken(ctx, AskedState, err)
	}
	return out, true, nil
}

// Restore goes on from a state that State kept of an episode with this start, in place of what was done in this one. It is false where the environment
// cannot.
func (e *Episode) Restore(ctx context.Context, start Start, state json.RawMessage) (bool, error) {
	s, ok := e.tenure.mem.env.(Stater)
	if !ok {
		return false, nil
	}
	var k kept
	if err := json.Unmarshal(state, &k); err != nil || len(k.State) == 0 {
		return true, e.rules.fail(ctx, AskedRestore, errors.New("what it shall go on from is no state that an episode kept"))
	}
	inner, err := e.tenure.enter(ctx, AskedRestore)
	if err != nil {
		return true, err
	}
	defer e.tenure.leave()
	if !e.fresh || !reflect.DeepEqual(start, e.start) {
		if err := e.resetNow(ctx, inner, start); err != nil {
			return true, err
		}
	}
	_, err = power(ctx, inner, e.tenure, e.rules.o.ResetTimeout, AskedRestore, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Restore(ctx, bytes.Clone(k.State))
	})
	if err != nil {
		return true, err
	}
	e.fresh, e.anchor, e.last = false, k.Anchor, Result{Terminated: k.Over && !k.Truncated, Truncated: k.Truncated, Success: k.Success}
	return true, nil
}

// Replay does recorded actions again, from the start of the episode, and compares what comes back with what was recorded: the observations, the rewards
// and the ends. An error that is no *Failure names the first step that differs, or says that the environment is not deterministic; the episode is of
// no use then.
func (e *Episode) Replay(ctx context.Context, actions []Action, want []Result) error {
	if !e.rules.spec.Deterministic {
		return fmt.Errorf("environments: %s: replay: the environment is not deterministic, so that its recorded actions need not lead to the same state", e.rules.o.Kind)
	}
	if len(want) > len(actions) {
		return fmt.Errorf("environments: %s: replay: there are %d actions and %d recorded results", e.rules.o.Kind, len(actions), len(want))
	}
	inner, err := e.tenure.enter(ctx, AskedStep)
	if err != nil {
		return err
	}
	defer e.tenure.leave()
	if !e.fresh {
		if err := e.resetNow(ctx, inner, e.start); err != nil {
			return err
		}
	}
	for i, a := range actions {
		got, err := e.stepNow(ctx, inner, a)
		if err != nil {
			return err
		}
		if i >= len(want) {
			continue
		}
		if text := differs(got, want[i]); text != "" {
			return fmt.Errorf("environments: %s: replay: step %d: %s", e.rules.o.Kind, i+1, text)
		}
	}
	return nil
}

// differs says in what two results differ; "" in nothing that an agent or a reward of its steps sees.
func differs(got, want Result) string {
	switch {
	case got.Reward != want.Reward:
		return fmt.Sprintf("the reward is %v, and %v was recorded", got.Reward, want.Reward)
	case !slices.Equal(got.Observation, want.Observation):
		return fmt.Sprintf("the observation is %q, and %q was recorded", short(got.Observation), short(want.Observation))
	case got.Over() != want.Over():
		return fmt.Sprintf("the episode is over: %t, and %t was recorded", got.Over(), want.Over())
	}
	return ""
}

// Score is the environment's own reward of the episode. It is false where it has none.
func (e *Episode) Score(ctx context.Context) (float64, bool, error) {
	s, ok := e.tenure.mem.env.(Scorer)
	if !ok {
		return 0, false, nil
	}
	v, err := asked(ctx, e, AskedScore, s.Score, func(v float64) error {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("the score is %v, and a reward must be finite; mend the environment", v)
		}
		return nil
	})
	return v, true, err
}

// Actions are those that are possible now. It is false where the environment does not know them.
func (e *Episode) Actions(ctx context.Context) ([]string, bool, error) {
	c, ok := e.tenure.mem.env.(Chooser)
	if !ok {
		return nil, false, nil
	}
	v, err := asked(ctx, e, AskedActions, c.Actions, nil)
	return v, true, err
}

// Solution are actions that end the episode with full reward from its start. It is false where the environment does not know them.
func (e *Episode) Solution(ctx context.Context) ([]Action, bool, error) {
	s, ok := e.tenure.mem.env.(Solver)
	if !ok {
		return nil, false, nil
	}
	v, err := asked(ctx, e, AskedSolve, s.Solution, nil)
	return v, true, err
}

// Call calls a method of the environment's own that is no action. It is false where it has none. Its error is a *Failure, or a *CallError after which
// the episode is as it was.
func (e *Episode) Call(ctx context.Context, method string, arguments json.RawMessage) (json.RawMessage, bool, error) {
	c, ok := e.tenure.mem.env.(Caller)
	if !ok {
		return nil, false, nil
	}
	var wrong *CallError
	v, err := asked(ctx, e, AskedCall, func(ctx context.Context) (json.RawMessage, error) {
		v, err := c.Call(ctx, method, arguments)
		if errors.As(err, &wrong) { // nothing was done
			return nil, nil
		}
		return v, err
	}, nil)
	if err == nil && wrong != nil {
		return nil, true, wrong
	}
	return v, true, err
}

// asked asks for a power that changes nothing. check may refuse the answer.
func asked[T any](ctx context.Context, e *Episode, what string, f func(ctx context.Context) (T, error), check func(T) error) (v T, err error) {
	inner, err := e.tenure.enter(ctx, what)
	if err != nil {
		return v, err
	}
	defer e.tenure.leave()
	if v, err = power(ctx, inner, e.tenure, e.rules.o.StepTimeout, what, f); err != nil || check == nil {
		return v, err
	}
	if err := check(v); err != nil {
		var none T
		return none, e.tenure.broken(ctx, what, err)
	}
	return v, nil
}

// Fork begins a second episode in the state of this one, which goes its own way. Its environment belongs to no pool, so that it counts in no bound on
// their number, and it is closed when the episode ends. It is false where the environment cannot.
func (e *Episode) Fork(ctx context.Context) (*Episode, bool, error) {
	f, ok := e.tenure.mem.env.(Forker)
	if !ok {
		return nil, false, nil
	}
	inner, err := e.tenure.enter(ctx, AskedFork)
	if err != nil {
		return nil, true, err
	}
	defer e.tenure.leave()
	all := e.tenure.episodes
	env, err := makeWithin(e.rules, &all.left, func(fork func(ctx context.Context) (struct{}, error)) error {
		_, err := power(ctx, inner, e.tenure, e.rules.o.ResetTimeout, AskedFork, fork)
		return err
	}, func(ctx context.Context) (Environment, error) {
		env, err := f.Fork(ctx)
		if err == nil && env == nil {
			err = errors.New("it returned no environment; mend it")
		}
		return env, err
	})
	if err != nil {
		return nil, true, err
	}
	second := newEpisode(newTenure(e.rules, all, newMember(e.rules.o.Kind, env, e.rules.spec.InProcess, &all.left), nil), e.start)
	second.first, second.fresh, second.last, second.anchor = e.first, e.fresh, e.last, e.anchor
	if err := all.enter(ctx, second.tenure); err != nil {
		second.End()
		return nil, true, e.rules.fail(ctx, AskedFork, err)
	}
	return second, true, nil
}
