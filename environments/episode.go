package environments

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/trajectory"
)

// Episode is one episode of an environment, from its reset on, and the lease of that environment. Whoever got it from Manager.Begin ends it with
// End, whatever happened. Its methods are safe for concurrent use; those that ask the environment something wait for each other.
//
// An error of a method is a *Failure. Unless the environment was asked for a power and the caller gave up before it began, the environment is closed
// and replaced after it, and all later calls return a *Failure too; a reset that a [TaskError] refuses leaves the environment as it is.
type Episode struct {
	m     *Manager
	mem   *member
	lease *pool.Lease // nil: a fork, which no pool knows

	waited, resetTook time.Duration
	first             Observation

	turn   chan struct{} // holds a token while the environment is asked something; it guards what follows
	start  Start
	fresh  bool   // nothing was done since the reset
	over   Result // the last result, where that ended the episode
	anchor string // of the state

	mu        sync.Mutex
	ended     bool
	failed    error                   // the first failure of the environment
	interrupt context.CancelCauseFunc // of what the environment is asked now; nil: nothing
	unfollow  func()
	silent    bool // the context of Begin is done
}

func newEpisode(m *Manager, mem *member, lease *pool.Lease, s Start) *Episode {
	return &Episode{m: m, mem: mem, lease: lease, start: s, turn: make(chan struct{}, 1), unfollow: func() {}}
}

// follow ends the episode some time after ctx is done.
func (e *Episode) follow(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(e.m.linger, e.End)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.silent, e.unfollow = true, func() { t.Stop() }
		if e.ended {
			t.Stop()
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.silent {
		e.unfollow = func() { stop() }
	}
}

// alive tells whether the context of Begin still lives.
func (e *Episode) alive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.silent && !e.ended
}

// First is what the reset showed.
func (e *Episode) First() Observation { return e.first }

// Waited is how long Begin waited for the lease, the making of an environment included.
func (e *Episode) Waited() time.Duration { return e.waited }

// ResetTook is how long the reset took.
func (e *Episode) ResetTook() time.Duration { return e.resetTook }

// Ready is how long it took until the episode could begin: the lease and the reset.
func (e *Episode) Ready() time.Duration { return e.waited + e.resetTook }

// Anchor names the state of now: what the last result said of it, else a name made of the last observation. An action that was not possible for a
// reason that the environment was not asked about, such as an unknown tool, leaves it as it was.
func (e *Episode) Anchor() string {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	return e.anchor
}

// Touch keeps the lease alive, where nothing else does: while the context of Begin lives, the manager does.
func (e *Episode) Touch() {
	if e.lease != nil {
		e.lease.Touch()
	}
}

// End gives the environment back, once: it is closed instead where it failed or is in the middle of a call, which returns then. It is safe to call
// again, from any goroutine, and from a deferred call after a panic.
func (e *Episode) End() {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return
	}
	e.ended = true
	why := e.failed
	if e.interrupt != nil {
		why = cmp.Or(why, errEnded)
		e.interrupt(errEnded)
	}
	unfollow := e.unfollow
	e.mu.Unlock()
	unfollow()
	e.m.mu.Lock()
	delete(e.m.live, e)
	e.m.mu.Unlock()
	e.release(why)
}

// release ends the lease. Where why is nil or the fault of a task, the environment may be used again. The pool closes what may not in the background: it waits for the call
// that still runs.
func (e *Episode) release(why error) {
	f := new(Failure)
	switch {
	case e.lease == nil:
		e.m.left.Add(1)
		go func() { defer e.m.left.Done(); _ = e.mem.Close() }()
	case why == nil || errors.As(why, &f) && f.task:
		e.lease.Return()
	case errors.Is(why, errEnded) || errors.As(why, &f) && f.givenUp:
		e.lease.Discard()
	default:
		e.lease.Break(why)
	}
}

// enter begins a call, after the one that runs. ctx of it is done when the episode ends. Its caller must leave.
func (e *Episode) enter(ctx context.Context, what string) (context.Context, error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, e.m.fail(ctx, what, causeOf(ctx))
	}
	if e.lease != nil {
		select {
		case <-e.lease.Done():
			e.lost()
		default:
			e.lease.Touch()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.failed
	if e.ended {
		err = cmp.Or(err, errOver)
	}
	if err != nil {
		<-e.turn
		if known := new(Failure); errors.As(err, &known) {
			return nil, known
		}
		return nil, e.m.fail(ctx, what, err)
	}
	ctx, e.interrupt = context.WithCancelCause(ctx)
	return ctx, nil
}

// leave ends a call.
func (e *Episode) leave() {
	e.mu.Lock()
	e.interrupt(errEnded)
	e.interrupt = nil
	e.mu.Unlock()
	<-e.turn
}

// lost notes that the lease ended without End: nobody kept it alive, or the pool was closed.
func (e *Episode) lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil && !e.ended {
		e.failed = e.m.fail(context.Background(), AskedLease, errors.New("the lease ended, because nobody kept it alive or the environments were closed; the episode cannot go on"))
	}
}

// broken makes the failure of a call, after which the environment is closed.
func (e *Episode) broken(ctx context.Context, what string, err error) error {
	f := e.m.fail(ctx, what, err)
	e.mu.Lock()
	if e.failed == nil {
		e.failed = f
	}
	ended := e.ended
	e.mu.Unlock()
	if !ended && e.lease != nil { // at once, so that it is replaced while the trajectory is brought to its end
		e.release(f)
	}
	return f
}

// power asks the environment something under a deadline, and breaks it where that fails. ctx is the caller's, inner that of enter.
func power[T any](ctx, inner context.Context, e *Episode, limit time.Duration, what string, f func(ctx context.Context) (T, error)) (T, error) {
	v, err := ask(inner, e.mem, limit, what, f)
	if err != nil {
		return v, e.broken(ctx, what, err)
	}
	return v, nil
}

// reset begins the episode.
func (e *Episode) reset(ctx context.Context, s Start) error {
	inner, err := e.enter(ctx, AskedReset)
	if err != nil {
		return err
	}
	defer e.leave()
	return e.resetNow(ctx, inner, s)
}

// resetNow is reset between enter and leave.
func (e *Episode) resetNow(ctx, inner context.Context, s Start) error {
	began := time.Now()
	o, err := power(ctx, inner, e, e.m.o.ResetTimeout, AskedReset, func(ctx context.Context) (Observation, error) {
		o, err := e.mem.env.Reset(ctx, s)
		return o, blame(s.Task, err)
	})
	e.m.count(func(c *counts) { c.resets.Add(time.Since(began)) })
	if err != nil {
		return err
	}
	if o, err = e.m.accept(o); err != nil {
		return e.broken(ctx, AskedReset, err)
	}
	e.start, e.fresh, e.over, e.first = s, true, Result{}, o
	e.anchor = nameOf("", o)
	return nil
}

// Step acts. What is wrong with the action is a result with FailurePolicy, also after the end of the episode and for a tool that does not exist; an
// action of the tool "act" is a text. The observation is at most Options.MaxText long, and Anchor is never empty.
func (e *Episode) Step(ctx context.Context, a Action) (Result, error) {
	inner, err := e.enter(ctx, AskedStep)
	if err != nil {
		return Result{}, err
	}
	defer e.leave()
	return e.stepNow(ctx, inner, a)
}

// stepNow is Step between enter and leave.
func (e *Episode) stepNow(ctx, inner context.Context, a Action) (Result, error) {
	if e.over.Over() {
		r := e.refuse("The episode is over. No further action is possible.")
		r.Terminated, r.Truncated, r.Success = e.over.Terminated, e.over.Truncated, e.over.Success
		return r, nil
	}
	a, wrong := e.m.check(a)
	if wrong != "" {
		return e.refuse(wrong), nil
	}
	began := time.Now()
	r, err := power(ctx, inner, e, e.m.o.StepTimeout, AskedStep, func(ctx context.Context) (Result, error) { return e.mem.env.Step(ctx, a) })
	e.m.count(func(c *counts) { c.steps.Add(time.Since(began)) })
	if err != nil {
		return Result{}, err
	}
	e.fresh = false
	if r.Failure == trajectory.FailurePolicy && r.Anchor == "" { // its text says what is wrong, and names no state
		r.Anchor = e.anchor
	}
	if r, err = e.m.acceptResult(r); err != nil {
		return Result{}, e.broken(ctx, AskedStep, err)
	}
	e.anchor = r.Anchor
	if r.Over() {
		e.over = r
	}
	return r, nil
}

// refuse is the result of an action that the environment is not asked to do.
func (e *Episode) refuse(text string) Result {
	return Result{Observation: Text(text), Anchor: e.anchor, Failure: trajectory.FailurePolicy}
}

// kept is the state of an episode.
type kept struct {
	State  json.RawMessage `json:"state"` // of the environment
	Anchor string          `json:"anchor"`
	Over   bool            `json:"over,omitempty"`
}

// State keeps the episode for Restore. It is false where the environment cannot.
func (e *Episode) State(ctx context.Context) (json.RawMessage, bool, error) {
	s, ok := e.mem.env.(Stater)
	if !ok {
		return nil, false, nil
	}
	inner, err := e.enter(ctx, AskedState)
	if err != nil {
		return nil, true, err
	}
	defer e.leave()
	state, err := power(ctx, inner, e, e.m.o.StepTimeout, AskedState, s.State)
	if err != nil {
		return nil, true, err
	}
	if !json.Valid(state) {
		return nil, true, e.broken(ctx, AskedState, errors.New("it returned no JSON value as its state; mend the environment"))
	}
	out, err := json.Marshal(kept{state, e.anchor, e.over.Over()})
	if err != nil {
		return nil, true, e.broken(ctx, AskedState, err)
	}
	return out, true, nil
}

// Restore goes on from a state that State kept of an episode with this start, in place of what was done in this one. It is false where the environment
// cannot.
func (e *Episode) Restore(ctx context.Context, start Start, state json.RawMessage) (bool, error) {
	s, ok := e.mem.env.(Stater)
	if !ok {
		return false, nil
	}
	var k kept
	if err := json.Unmarshal(state, &k); err != nil || len(k.State) == 0 {
		return true, e.m.fail(ctx, AskedRestore, errors.New("what it shall go on from is no state that an episode kept"))
	}
	inner, err := e.enter(ctx, AskedRestore)
	if err != nil {
		return true, err
	}
	defer e.leave()
	if !e.fresh || !reflect.DeepEqual(start, e.start) {
		if err := e.resetNow(ctx, inner, start); err != nil {
			return true, err
		}
	}
	_, err = power(ctx, inner, e, e.m.o.ResetTimeout, AskedRestore, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Restore(ctx, bytes.Clone(k.State))
	})
	if err != nil {
		return true, err
	}
	e.fresh, e.anchor, e.over = false, k.Anchor, Result{Terminated: k.Over}
	return true, nil
}

// Replay does recorded actions again, from the start of the episode, and compares what comes back with what was recorded: the observations, the rewards
// and the ends. An error that is no *Failure names the first step that differs, or says that the environment is not deterministic; the episode is of
// no use then.
func (e *Episode) Replay(ctx context.Context, actions []Action, want []Result) error {
	if !e.m.spec.Deterministic {
		return fmt.Errorf("environments: %s: replay: the environment is not deterministic, so that its recorded actions need not lead to the same state", e.m.o.Kind)
	}
	if len(want) > len(actions) {
		return fmt.Errorf("environments: %s: replay: there are %d actions and %d recorded results", e.m.o.Kind, len(actions), len(want))
	}
	inner, err := e.enter(ctx, AskedStep)
	if err != nil {
		return err
	}
	defer e.leave()
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
			return fmt.Errorf("environments: %s: replay: step %d: %s", e.m.o.Kind, i+1, text)
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
	s, ok := e.mem.env.(Scorer)
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
	c, ok := e.mem.env.(Chooser)
	if !ok {
		return nil, false, nil
	}
	v, err := asked(ctx, e, AskedActions, c.Actions, nil)
	return v, true, err
}

// Solution are actions that end the episode with full reward from its start. It is false where the environment does not know them.
func (e *Episode) Solution(ctx context.Context) ([]Action, bool, error) {
	s, ok := e.mem.env.(Solver)
	if !ok {
		return nil, false, nil
	}
	v, err := asked(ctx, e, AskedSolve, s.Solution, nil)
	return v, true, err
}

// Call calls a method of the environment's own that is no action. It is false where it has none. Its error is a *Failure, or a *CallError after which
// the episode is as it was.
func (e *Episode) Call(ctx context.Context, method string, arguments json.RawMessage) (json.RawMessage, bool, error) {
	c, ok := e.mem.env.(Caller)
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
	inner, err := e.enter(ctx, what)
	if err != nil {
		return v, err
	}
	defer e.leave()
	if v, err = power(ctx, inner, e, e.m.o.StepTimeout, what, f); err != nil || check == nil {
		return v, err
	}
	if err := check(v); err != nil {
		var none T
		return none, e.broken(ctx, what, err)
	}
	return v, nil
}

// Fork begins a second episode in the state of this one, which goes its own way. Its environment belongs to no pool, so that it counts in no bound on
// their number, and it is closed when the episode ends. It is false where the environment cannot.
func (e *Episode) Fork(ctx context.Context) (*Episode, bool, error) {
	f, ok := e.mem.env.(Forker)
	if !ok {
		return nil, false, nil
	}
	inner, err := e.enter(ctx, AskedFork)
	if err != nil {
		return nil, true, err
	}
	defer e.leave()
	env, err := power(ctx, inner, e, e.m.o.ResetTimeout, AskedFork, func(ctx context.Context) (Environment, error) {
		env, err := f.Fork(ctx)
		if err == nil && env == nil {
			err = errors.New("it returned no environment; mend it")
		}
		if env != nil && ctx.Err() != nil { // nobody waits for it any longer
			_ = env.Close()
			return nil, ctx.Err()
		}
		return env, err
	})
	if err != nil {
		return nil, true, err
	}
	second := newEpisode(e.m, newMember(e.m.o.Kind, env, e.m.spec.InProcess, &e.m.left), nil, e.start)
	second.first, second.fresh, second.over, second.anchor = e.first, e.fresh, e.over, e.anchor
	if err := e.m.enter(ctx, second); err != nil {
		second.End()
		return nil, true, e.m.fail(ctx, AskedFork, err)
	}
	return second, true, nil
}
