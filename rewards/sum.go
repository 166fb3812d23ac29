package rewards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/agentfly/agentfly/internal/watchdog"
)

// NewFunc makes a reward of a function that returns a number.
func NewFunc(name string, score func(ctx context.Context, in Input) (float64, error)) Reward {
	return function{name, func(ctx context.Context, in Input) (Score, error) {
		v, err := score(ctx, in)
		return Score{Value: v}, err
	}}
}

// NewFuncParts makes a reward of a function that returns a number with named parts.
func NewFuncParts(name string, score func(ctx context.Context, in Input) (Score, error)) Reward {
	return function{name, score}
}

type function struct {
	name  string
	score func(ctx context.Context, in Input) (Score, error)
}

func (f function) Name() string                                       { return f.name }
func (f function) Score(ctx context.Context, in Input) (Score, error) { return f.score(ctx, in) }

// Weighted is one term of a sum.
type Weighted struct {
	Reward Reward
	Weight float64
}

// sum adds rewards times their weights: value = Σ weight · value of the term. Its parts are the value of each term,
// before the weight, by the term's name (or what it reports as Shown), and the parts of the terms as name.part.
type sum struct {
	terms   []Weighted
	timeout time.Duration
}

const defaultTimeout = 60 * time.Second

// NewSum returns the weighted sum of rewards. Every term is called under a deadline (timeout, 0 is 60 s) and guarded: a
// panic, a NaN or an infinite number is an error that names the term.
func NewSum(timeout time.Duration, terms ...Weighted) (Reward, error) {
	if len(terms) == 0 {
		return nil, errors.New("rewards: no reward is given; name at least one")
	}
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	seen := map[string]bool{}
	for _, t := range terms {
		switch {
		case t.Reward == nil:
			return nil, errors.New("rewards: a reward is nil")
		case seen[t.Reward.Name()]:
			return nil, fmt.Errorf("rewards: %s is given twice; give it one weight, or another name with as: NAME", t.Reward.Name())
		case math.IsNaN(t.Weight) || math.IsInf(t.Weight, 0):
			return nil, fmt.Errorf("rewards: %s: the weight %v is not a finite number", t.Reward.Name(), t.Weight)
		}
		seen[t.Reward.Name()] = true
	}
	return &sum{terms: terms, timeout: timeout}, nil
}

func (s *sum) Name() string { return "sum" }

func (s *sum) Score(ctx context.Context, in Input) (Score, error) {
	out := Score{Parts: map[string]float64{}}
	for _, t := range s.terms {
		score, err := Run(ctx, s.timeout, t.Reward, in)
		if err != nil {
			return Score{}, err
		}
		out.Value += t.Weight * score.Value
		withParts(out.Parts, t.Reward.Name(), score)
	}
	if math.IsNaN(out.Value) || math.IsInf(out.Value, 0) {
		return Score{}, fmt.Errorf("rewards: the weighted sum is %v", out.Value)
	}
	return out, nil
}

// Run scores once under a deadline. A panic, a NaN or an infinite number becomes an error that names the reward. A
// reward that ignores ctx keeps its goroutine until it returns; its score is dropped. The deadline stands still where a reward is
// off the clock.
func Run(ctx context.Context, timeout time.Duration, r Reward, in Input) (Score, error) {
	own, stop := newClock(ctx, timeout)
	defer stop()
	ctx = own
	if in.Trajectory != nil {
		defer watchdog.Enter(ctx, "reward "+r.Name(), in.Trajectory.ID).Leave()
	}
	type outcome struct {
		score Score
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		score, err := guarded(ctx, r, in)
		done <- outcome{score, err}
	}()
	select {
	case o := <-done:
		return o.score, o.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return Score{}, fmt.Errorf("rewards: %s: no score after %s: %w", r.Name(), timeout, ctx.Err())
		}
		return Score{}, fmt.Errorf("rewards: %s: %w", r.Name(), ctx.Err())
	}
}

func guarded(ctx context.Context, r Reward, in Input) (score Score, err error) {
	defer func() {
		if v := recover(); v != nil {
			score, err = Score{}, fmt.Errorf("rewards: %s: panic: %v", r.Name(), v)
		}
	}()
	if score, err = checked(ctx, r, in); err != nil {
		return Score{}, fmt.Errorf("rewards: %w", err)
	}
	return score, nil
}

// checked scores, and makes an error of a value or part that is not finite. The error begins with the reward's name.
func checked(ctx context.Context, r Reward, in Input) (Score, error) {
	score, err := r.Score(ctx, in)
	if err != nil {
		return Score{}, fmt.Errorf("%s: %w", r.Name(), err)
	}
	if math.IsNaN(score.Value) || math.IsInf(score.Value, 0) {
		return Score{}, fmt.Errorf("%s: the value is %v, not a finite number", r.Name(), score.Value)
	}
	for part, v := range score.Parts {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Score{}, fmt.Errorf("%s: the part %q is %v, not a finite number", r.Name(), part, v)
		}
	}
	return score, nil
}
