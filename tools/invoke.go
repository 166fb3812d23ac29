package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

// pauses are those between the attempts of a call.
var pauses = retry.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}

const (
	maxInfo   = 1 << 20 // bytes of Observation.Info as JSON
	maxAnswer = 1 << 20 // tokens of a final answer
)

// callError says why a call failed.
type callError struct {
	cause trajectory.Cause
	err   error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

func interrupted(name string) error {
	return &callError{trajectory.CauseInterrupted, fmt.Errorf("%s: the run was interrupted", name)}
}

// Invoke runs one call of a trajectory. It never fails: an unknown tool, wrong arguments, an error, a panic or a passed
// deadline gives a result with Failed set, its cause, and an observation that tells the model how to do it right. When ctx itself is
// done the observation says so; the caller checks ctx. The tool's deadline does not run while the call waits for its turn.
func (r *Registry) Invoke(ctx context.Context, trajectoryID string, c trajectory.ToolCall) trajectory.ToolResult {
	start := time.Now()
	out := trajectory.ToolResult{Call: c}
	e, err := r.lookup(c.Name)
	if err == nil {
		err = r.run(ctx, e, trajectoryID, &out)
	} else {
		err = &callError{trajectory.CauseUnknownTool, err}
	}
	if err != nil {
		out.Fail(causeOf(err), "Error: "+errorText(err, c.Arguments))
	}
	if !out.Cached {
		r.shorten(e, &out)
	}
	out.Duration = time.Since(start)
	return out
}

// shorten makes an observation of what a call gave: text within the limit of its tokens. A final answer is what rewards judge, and no model reads
// it, so that it stays whole. e is nil where there is no such tool.
func (r *Registry) shorten(e *entry, out *trajectory.ToolResult) {
	limit := r.options.MaxTokens
	switch {
	case e == nil:
	case e.whole && out.Terminal:
		limit = maxAnswer
	default:
		limit = e.spec.Limits.MaxTokens
	}
	out.Observation = cut(r.options.Tokenizer, strings.ToValidUTF8(out.Observation, "\uFFFD"), limit)
}

func causeOf(err error) trajectory.Cause {
	var known *callError
	var broken *BrokenError
	switch {
	case errors.As(err, &known):
		return known.cause
	case errors.As(err, &broken):
		return trajectory.CauseBroken
	}
	return trajectory.CauseRaised
}

// run checks the arguments and fills in what the call gives, from the cache where it is kept.
func (r *Registry) run(ctx context.Context, e *entry, trajectoryID string, out *trajectory.ToolResult) error {
	name, arguments := e.spec.Name, out.Call.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if err := e.schema.Check(arguments); err != nil {
		text := name + ": " + err.Error()
		if usage := e.schema.Usage(); !strings.Contains(text, usage) {
			text += "; the arguments are " + usage
		}
		return &callError{trajectory.CauseBadArguments, errors.New(text)}
	}
	if ctx.Err() != nil {
		return interrupted(name)
	}
	call := Call{ID: out.Call.ID, Trajectory: trajectoryID, Arguments: arguments}
	if e.cache == nil {
		return r.attempts(ctx, e, call, out)
	}
	key, err := cacheKey(arguments)
	if err != nil {
		return err
	}
	wait := watchdog.Enter(ctx, "tool "+name, trajectoryID)
	known, err := e.cache.get(ctx, key)
	wait.Leave()
	if err != nil {
		return interrupted(name)
	}
	if known != nil {
		out.Observation, out.Info, out.Cached, out.Terminal = known.text, known.info, true, e.spec.Terminal
		return nil
	}
	var keep *kept
	defer func() { e.cache.done(key, keep) }()
	if err := r.attempts(ctx, e, call, out); err != nil {
		return err
	}
	r.shorten(e, out)
	keep = &kept{key, out.Observation, out.Info}
	return nil
}

// attempts calls the tool, again where it broke and may be called again. All attempts and the pauses between them have the time of one
// call; waiting for a turn is not counted.
func (r *Registry) attempts(ctx context.Context, e *entry, c Call, out *trajectory.ToolResult) error {
	left := e.spec.Limits.Timeout
	for {
		pause := pauses.Wait(out.Retries + 1)
		o, spent, err := r.attempt(ctx, e, c, left)
		out.Outcome = o.Outcome // also of a call that failed after it had acted, or whose result is refused
		switch {
		case err == nil:
			return accept(e, o, out)
		case o.Outcome != nil: // another attempt would act a second time, and what this one was paid would be lost
			return err
		}
		left -= spent + pause
		var broken *BrokenError
		if !errors.As(err, &broken) || out.Retries >= e.spec.Limits.Retries || left <= 0 || retry.Pause(ctx, pause) != nil {
			return err
		}
		out.Retries++
	}
}

// accept takes what a tool returned beside the outcome.
func accept(e *entry, o Observation, out *trajectory.ToolResult) error {
	if o.Image != "" {
		return fmt.Errorf("%s returned an image, and this model takes text only; ask it for text", e.spec.Name)
	}
	if len(o.Info) > 0 {
		info, err := json.Marshal(o.Info)
		if err == nil && len(info) > maxInfo {
			err = fmt.Errorf("it has %d bytes, at most %d are kept", len(info), maxInfo)
		}
		if err != nil {
			return &BrokenError{Text: fmt.Sprintf("%s returned info that cannot be recorded: %v", e.spec.Name, err)}
		}
		out.Info = info
	}
	out.Observation, out.Terminal = o.Text, e.spec.Terminal && !o.Refused
	if o.Refused {
		out.Fail(trajectory.CauseRaised, o.Text)
	}
	return nil
}

// Of a call that runs: whether somebody waits for it.
const (
	awaited int32 = iota
	ended
	abandoned
)

// attempt calls the tool once when its turn has come. spent is the time of the call itself.
func (r *Registry) attempt(ctx context.Context, e *entry, c Call, left time.Duration) (o Observation, spent time.Duration, err error) {
	wait := watchdog.Enter(ctx, "a turn of tool "+e.spec.Name, c.Trajectory)
	err = e.gate.enter(ctx, c.Trajectory)
	wait.Leave()
	if err != nil {
		return o, 0, interrupted(e.spec.Name)
	}
	defer e.gate.leave() // also of a call that ignores its deadline: the others must go on
	own, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	defer watchdog.Enter(ctx, "tool "+e.spec.Name, c.Trajectory).Leave()
	type outcome struct {
		o   Observation
		err error
	}
	done := make(chan outcome, 1)
	var state atomic.Int32
	start := time.Now()
	_, ends := e.tool.(Ender)
	if ends {
		e.running.begin(c.Trajectory)
	}
	go func() {
		var got outcome
		defer func() {
			if ends {
				e.running.end(c.Trajectory)
			}
			if state.Swap(ended) == abandoned {
				e.abandoned.Add(-1)
			}
			done <- got
		}()
		got.err = &BrokenError{Text: e.spec.Name + " ended without a result"} // runtime.Goexit
		got.o, got.err = r.guarded(own, e, c)
	}()
	select {
	case got := <-done:
		o, err = got.o, got.err
		if err == nil || own.Err() == nil || !errors.Is(err, own.Err()) {
			return o, time.Since(start), err
		}
	case <-own.Done():
		if e.abandoned.Add(1); !state.CompareAndSwap(awaited, abandoned) { // it ended at this moment
			e.abandoned.Add(-1)
		}
	}
	if ctx.Err() != nil {
		return Observation{}, time.Since(start), interrupted(e.spec.Name)
	}
	return Observation{}, time.Since(start), &BrokenError{Text: fmt.Sprintf("%s took longer than %s; ask it for less work", e.spec.Name, e.spec.Limits.Timeout)}
}

// guarded turns a panic into an error. Its value goes to Report, not to the model: it may name host paths.
func (r *Registry) guarded(ctx context.Context, e *entry, c Call) (o Observation, err error) {
	defer func() {
		if v := recover(); v != nil {
			if r.options.Report != nil {
				r.options.Report(e.spec.Name, fmt.Errorf("tools: %s: panic: %v", e.spec.Name, v), debug.Stack())
			}
			o, err = Observation{}, &BrokenError{Text: e.spec.Name + " failed inside; try other arguments"}
		}
	}()
	return e.tool.Call(ctx, c)
}
