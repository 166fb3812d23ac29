package environments

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Bound is a source whose environments have the deadlines of o and its bound on observations, for a server that lends them itself: a Manager's
// environments without its pool and episodes. Of the optional powers they have Scorer alone. Where a call does not return in time it is left behind
// with an error; the environment must be closed then. What an earlier process of o's Owner left behind is swept first, as Open does. The source stays
// its owner's to close.
func Bound(s Source, o Options) Source {
	r := newRules(o)
	r.spec = s.Spec()
	r.sweep(s)
	return &boundSource{Source: s, rules: r}
}

type boundSource struct {
	Source
	rules *rules
	left  sync.WaitGroup // calls of environments
}

// New makes an environment within the time of a reset. One that comes later is closed.
func (b *boundSource) New(ctx context.Context, owner string) (Environment, error) {
	env, err := makeWithin(b.rules, &b.left, func(make func(ctx context.Context) (struct{}, error)) error {
		_, err := ask(ctx, newMember(b.rules.o.Kind, nil, b.rules.spec.InProcess, &b.left), b.rules.o.ResetTimeout, AskedReset, make)
		return err
	}, func(ctx context.Context) (Environment, error) {
		env, err := b.Source.New(ctx, owner)
		if err == nil && env == nil {
			err = errors.New("the source made no environment")
		}
		return env, err
	})
	if err != nil {
		return nil, err
	}
	e := &bound{rules: b.rules, mem: newMember(b.rules.o.Kind, env, b.rules.spec.InProcess, &b.left)}
	if _, ok := env.(Scorer); ok {
		return &boundScorer{e}, nil
	}
	return e, nil
}

// makeWithin makes an environment by a call that may be given up. One that nobody takes, because the call failed or because it came in the moment in
// which it was given up or later, is closed.
func makeWithin(r *rules, left *sync.WaitGroup, call func(f func(ctx context.Context) (struct{}, error)) error, f func(ctx context.Context) (Environment, error)) (Environment, error) {
	var mu sync.Mutex
	var made Environment
	gone := false
	unwanted := func(env Environment) {
		if env != nil {
			left.Go(func() { _ = newMember(r.o.Kind, env, r.spec.InProcess, left).Close() })
		}
	}
	err := call(func(ctx context.Context) (struct{}, error) {
		env, err := f(ctx)
		mu.Lock()
		defer mu.Unlock()
		if made = env; gone {
			unwanted(env)
		}
		return struct{}{}, err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		gone = true
		unwanted(made)
		return nil, err
	}
	return made, nil
}

// bound is an environment under deadlines.
type bound struct {
	rules *rules
	mem   *member
}

func (e *bound) Reset(ctx context.Context, s Start) (Observation, error) {
	o, err := ask(ctx, e.mem, e.rules.o.ResetTimeout, AskedReset, func(ctx context.Context) (Observation, error) { return e.mem.env.Reset(ctx, s) })
	if err != nil {
		return nil, err
	}
	return e.rules.accept(o)
}

func (e *bound) Step(ctx context.Context, a Action) (Result, error) {
	r, err := ask(ctx, e.mem, e.rules.o.StepTimeout, AskedStep, func(ctx context.Context) (Result, error) { return e.mem.env.Step(ctx, a) })
	if err != nil {
		return r, err
	}
	if err := failed(r); err != nil {
		return r, err
	}
	if r.Observation, err = e.rules.accept(r.Observation); err != nil {
		return r, fmt.Errorf("a step: %w", err)
	}
	return r, nil
}

func (e *bound) Close() error { return e.mem.Close() }

// boundScorer is one that scores its episodes.
type boundScorer struct{ *bound }

func (e *boundScorer) Score(ctx context.Context) (float64, error) {
	return ask(ctx, e.mem, e.rules.o.StepTimeout, AskedScore, e.mem.env.(Scorer).Score)
}
