package environmenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/environments"
)

// asAction reads an action that Chooser listed: the text of one, or the JSON of a call {"name": …, "arguments": {…}} of an own tool.
func asAction(listed string) environments.Action {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal([]byte(listed), &call) == nil && call.Name != "" {
		return environments.Action{Name: call.Name, Arguments: call.Arguments}
	}
	return environments.Action{Text: listed}
}

// watched is a source whose environments are watched: how often each is closed, and how that went.
type watched struct {
	environments.Source
	reset func(environments.Observation)
	step  func() error // before each step; it may panic

	mu  sync.Mutex
	all []*watchedEnvironment
}

type watchedEnvironment struct {
	environments.Environment
	w      *watched
	closed atomic.Int32
	err    error
}

func (w *watched) New(ctx context.Context, owner string) (environments.Environment, error) {
	e, err := w.Source.New(ctx, owner)
	if err != nil {
		return nil, err
	}
	out := &watchedEnvironment{Environment: e, w: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, out)
	return out, nil
}

func (e *watchedEnvironment) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	o, err := e.Environment.Reset(ctx, s)
	if err == nil && e.w.reset != nil {
		e.w.reset(o)
	}
	return o, err
}

func (e *watchedEnvironment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if e.w.step != nil {
		if err := e.w.step(); err != nil {
			return environments.Result{}, err
		}
	}
	return e.Environment.Step(ctx, a)
}

func (e *watchedEnvironment) Close() error {
	if e.closed.Add(1) == 1 {
		e.err = e.Environment.Close()
	}
	return e.err
}

// scriptOf is the script of an episode that nobody watches.
func (c Case) scriptOf(t testing.TB) (actions []environments.Action, err error) {
	err = c.set(t, nil, func(s *stage) error {
		e, err := s.begin(s.a)
		if err != nil {
			return err
		}
		defer e.End()
		actions, err = c.script(s.ctx, e)
		return err
	})
	return actions, err
}

// exits: however an episode ends, its environment is closed once, without an error, and an episode can follow.
func exits(t testing.TB, c Case) error {
	actions, err := c.scriptOf(t)
	if err != nil {
		return err
	}
	if len(actions) == 0 {
		return errors.New("the script of an episode is empty")
	}
	first := actions[0]
	ways := map[string]func(s *stage, w *watched, e *environments.Episode) error{
		"answer": func(s *stage, _ *watched, e *environments.Episode) error {
			_, err := follow(s.ctx, e, actions)
			return err
		},
		"limit": func(s *stage, _ *watched, e *environments.Episode) error {
			_, err := e.Step(s.ctx, first)
			return err
		},
		"error": func(s *stage, w *watched, e *environments.Episode) error {
			w.step = func() error { return errors.New("broken by the test") }
			_, err := e.Step(s.ctx, first)
			w.step = nil
			return mustFail(err)
		},
		"cancel": func(s *stage, _ *watched, e *environments.Episode) error {
			ctx, cancel := context.WithCancel(s.ctx)
			cancel()
			_, err := e.Step(ctx, first)
			return mustFail(err)
		},
		"panic": func(s *stage, w *watched, e *environments.Episode) error {
			w.step = func() error { panic("panic of the test") }
			_, err := e.Step(s.ctx, first)
			w.step = nil
			return mustFail(err)
		},
	}
	if c.Kill != nil {
		ways["worker killed"] = func(s *stage, w *watched, e *environments.Episode) error {
			if err := c.Kill(w.all[0].Environment); err != nil {
				return fmt.Errorf("the case cannot kill: %w", err)
			}
			_, err := e.Step(s.ctx, first)
			return mustFail(err)
		}
	}
	for name, way := range ways {
		var w *watched
		err := c.set(t, func(s environments.Source) environments.Source { w = &watched{Source: s}; return w }, func(s *stage) error {
			e, err := s.begin(s.a)
			if err != nil {
				return err
			}
			defer e.End()
			if err := way(s, w, e); err != nil {
				return err
			}
			e.End()
			e.End()
			_, err = s.play(c, s.b, actions[:0])
			return err
		})
		if err != nil {
			return fmt.Errorf("exit by %s: %w", name, err)
		}
		for i, e := range w.all {
			if n := e.closed.Load(); n != 1 {
				return fmt.Errorf("exit by %s: environment %d is closed %d times", name, i, n)
			}
			if e.err != nil {
				return fmt.Errorf("exit by %s: closing environment %d: %w", name, i, e.err)
			}
		}
	}
	return nil
}

func mustFail(err error) error {
	var f *environments.Failure
	if !errors.As(err, &f) {
		return fmt.Errorf("the step gave %v in place of a failure", err)
	}
	return nil
}

// cancelled: a step whose context is done returns soon, whether it was done or not, and the environment can be closed.
func cancelled(t testing.TB, c Case) error {
	actions, err := c.scriptOf(t)
	if err != nil {
		return err
	}
	return c.set(t, nil, func(s *stage) error {
		env, err := s.source.New(s.ctx, "environmenttest")
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() {
			if _, err := env.Reset(s.ctx, s.a); err != nil {
				done <- err
				return
			}
			for _, a := range actions[:min(1, len(actions))] {
				ctx, cancel := context.WithCancel(s.ctx)
				cancel()
				_, _ = env.Step(ctx, a) // either is right
			}
			done <- env.Close()
		}()
		limit := time.NewTimer(c.Reset + c.late)
		defer limit.Stop()
		select {
		case err := <-done:
			return err
		case <-limit.C:
			return errors.New("a step whose context is done does not return")
		}
	})
}

// goroutines: nothing runs on once an environment and its source are closed.
func goroutines(t testing.TB, c Case) error {
	if _, err := c.scriptOf(t); err != nil { // what is started once and stays
		return err
	}
	before := goleak.IgnoreCurrent()
	err := c.set(t, nil, func(s *stage) error {
		for _, start := range []environments.Start{s.a, s.b} {
			if _, err := s.play(c, start, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return goleak.Find(before)
}
