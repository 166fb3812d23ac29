package rewards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/resources"
)

// nested makes the reward that a parameter of a combinator holds, as a job writes it: a name, {name: NAME, parameter: value}, or a number,
// which is a reward that always has that value.
func (b *Builder) nested(key string, v any) (Reward, error) {
	w, err := b.term(v)
	if err == nil && w.Weight != 1 {
		err = errors.New("a weight has no meaning here; use scale")
	}
	if err != nil {
		return nil, &nestedError{key, err}
	}
	return w.Reward, nil
}

// nestedError says in which parameter a reward stands that cannot be made.
type nestedError struct {
	key string
	err error
}

func (e *nestedError) Error() string { return e.key + ": " + e.err.Error() }
func (e *nestedError) Unwrap() error { return e.err }

// Keys are the parameters that lead to what an error of Make is about, from the outside: then, of, 0.
func Keys(err error) []string {
	var keys []string
	for e := (*nestedError)(nil); errors.As(err, &e); err = e.err {
		keys = append(keys, strings.Split(e.key, ".")...)
	}
	return keys
}

// list makes the rewards of a parameter that is a list of them.
func (b *Builder) list(key string, v any, weights bool) ([]Weighted, error) {
	items, ok := v.([]any)
	if !ok || len(items) == 0 {
		return nil, fmt.Errorf("%s: a list of rewards is needed, such as [f1, {name: tags, tags: [think, answer]}]", key)
	}
	seen := map[string]bool{}
	out := make([]Weighted, len(items))
	for i, item := range items {
		w, err := b.term(item)
		if err == nil && w.Weight != 1 && !weights {
			err = errors.New("a weight has no meaning here; use scale")
		}
		if err != nil {
			return nil, &nestedError{fmt.Sprintf("%s.%d", key, i), err}
		}
		if name := w.Reward.Name(); seen[name] {
			return nil, &nestedError{fmt.Sprintf("%s.%d", key, i), fmt.Errorf("%s is given twice; give one of the two another name with as: NAME", name)}
		}
		seen[w.Reward.Name()] = true
		out[i] = w
	}
	return out, nil
}

func (b *Builder) term(v any) (Weighted, error) {
	out := Weighted{Weight: 1}
	name, params := "", map[string]any{}
	switch v := v.(type) {
	case nil:
		return out, errors.New("a reward is needed: a name, {name: NAME, parameter: value} or a number")
	case float64:
		return Weighted{constant(v), 1}, nil
	case int64:
		return Weighted{constant(float64(v)), 1}, nil
	case int:
		return Weighted{constant(float64(v)), 1}, nil
	case string:
		name = v
	case map[string]any:
		for k, x := range v {
			var ok bool
			switch k {
			case "name":
				if name, ok = x.(string); !ok {
					return out, errors.New("name must be a text")
				}
			case "weight":
				if out.Weight, ok = x.(float64); !ok {
					return out, errors.New("weight must be a number")
				}
			default:
				params[k] = x
			}
		}
		if name == "" {
			return out, errors.New("the key name is missing; write {name: NAME, parameter: value}")
		}
	default:
		return out, fmt.Errorf("a %T is no reward; write a name, {name: NAME, parameter: value} or a number", v)
	}
	r, err := b.make(name, params)
	out.Reward = r
	return out, err
}

// constant is a reward that always has one value.
func constant(v float64) Reward {
	return NewFunc(strconv.FormatFloat(v, 'g', -1, 64), func(context.Context, Input) (float64, error) { return v, nil })
}

// run scores a term of a combinator, which itself runs under a deadline. A panic and a number that is not finite are errors.
func run(ctx context.Context, r Reward, in Input) (Score, error) {
	if err := ctx.Err(); err != nil {
		return Score{}, err
	}
	in.within = true
	return checked(ctx, r, in)
}

// withParts adds what a term scored, under its name.
func withParts(parts map[string]float64, name string, s Score) map[string]float64 {
	parts[name] = s.Value
	for k, v := range s.Parts {
		if k == Shown {
			parts[name] = v
		} else {
			parts[name+"."+k] = v
		}
	}
	return parts
}

type sumParams struct {
	Of any `json:"of"` // rewards, each with a weight
}

// newNestedSum makes sum: Σ weight · value over the rewards of the list.
func newNestedSum(b *Builder, params map[string]any) (Reward, error) {
	var p sumParams
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	terms, err := b.list("of", p.Of, true)
	if err != nil {
		return nil, err
	}
	return needsOf(NewFuncParts("sum", func(ctx context.Context, in Input) (Score, error) {
		out := Score{Parts: map[string]float64{}}
		for _, t := range terms {
			s, err := run(ctx, t.Reward, in)
			if err != nil {
				return Score{}, err
			}
			out.Value += t.Weight * s.Value
			withParts(out.Parts, t.Reward.Name(), s)
		}
		return out, nil
	}), rewardsOf(terms)...), nil
}

type gateParams struct {
	If        any     `json:"if"`        // a reward
	Threshold float64 `json:"threshold"` // default 1
	Then      any     `json:"then"`      // a reward or a number
	Else      any     `json:"else"`      // the same; default 0
}

// newGate makes gate: the value of then where that of if is threshold or more, else the value of else. Only the one that counts is
// computed, so that a judge is not asked about what has no format. The part open is 1 or 0.
func newGate(b *Builder, params map[string]any) (Reward, error) {
	p := gateParams{Threshold: 1, Else: 0.0}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	condition, err := b.nested("if", p.If)
	if err != nil {
		return nil, err
	}
	then, err := b.nested("then", p.Then)
	if err != nil {
		return nil, err
	}
	otherwise, err := b.nested("else", p.Else)
	if err != nil {
		return nil, err
	}
	return needsOf(NewFuncParts("gate", func(ctx context.Context, in Input) (Score, error) {
		c, err := run(ctx, condition, in)
		if err != nil {
			return Score{}, err
		}
		parts := withParts(map[string]float64{"open": 0}, "if", c)
		branch, chosen := "else", otherwise
		if c.Value >= p.Threshold {
			parts["open"] = 1
			branch, chosen = "then", then
		}
		s, err := run(ctx, chosen, in)
		if err != nil {
			return Score{}, err
		}
		return Score{s.Value, withParts(parts, branch, s)}, nil
	}), condition), nil // the branches are computed where they count
}

type clipParams struct {
	Of  any      `json:"of"`  // a reward
	Min *float64 `json:"min"` // default: none
	Max *float64 `json:"max"` // default: none
}

// newClip makes clip: min(max, max(min, value)).
func newClip(b *Builder, params map[string]any) (Reward, error) {
	var p clipParams
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	low, high := math.Inf(-1), math.Inf(1)
	if p.Min != nil {
		low = *p.Min
	}
	if p.Max != nil {
		high = *p.Max
	}
	if p.Min == nil && p.Max == nil || low > high {
		return nil, errors.New("min or max is needed, and min must not be above max")
	}
	return b.mapped("clip", p.Of, func(v float64) float64 { return min(high, max(low, v)) })
}

type scaleParams struct {
	Of  any     `json:"of"`  // a reward
	By  float64 `json:"by"`  // default 1
	Add float64 `json:"add"` // default 0
}

// newScale makes scale: by · value + add.
func newScale(b *Builder, params map[string]any) (Reward, error) {
	p := scaleParams{By: 1}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return b.mapped("scale", p.Of, func(v float64) float64 { return p.By*v + p.Add })
}

// mapped makes a combinator that changes the value of one reward.
func (b *Builder) mapped(name string, of any, f func(float64) float64) (Reward, error) {
	r, err := b.nested("of", of)
	if err != nil {
		return nil, err
	}
	return needsOf(NewFuncParts(name, func(ctx context.Context, in Input) (Score, error) {
		s, err := run(ctx, r, in)
		if err != nil {
			return Score{}, err
		}
		return Score{f(s.Value), withParts(map[string]float64{}, r.Name(), s)}, nil
	}), r), nil
}

// fold makes the factory of a combinator that goes through a list of rewards until done.
func fold(name string, first float64, f func(so, v float64) (value float64, done bool)) Factory {
	return func(b *Builder, params map[string]any) (Reward, error) {
		var p sumParams
		if err := resources.Decode(params, &p); err != nil {
			return nil, err
		}
		terms, err := b.list("of", p.Of, false)
		if err != nil {
			return nil, err
		}
		return needsOf(NewFuncParts(name, func(ctx context.Context, in Input) (Score, error) {
			out := Score{first, map[string]float64{}}
			for _, t := range terms {
				s, err := run(ctx, t.Reward, in)
				if err != nil {
					return Score{}, err
				}
				withParts(out.Parts, t.Reward.Name(), s)
				var done bool
				if out.Value, done = f(out.Value, s.Value); done {
					break
				}
			}
			return out, nil
		}), rewardsOf(terms)...), nil
	}
}

// The rewards that combine others.
var (
	_ = declareReward("sum", newNestedSum, "the sum of weight * value over a list of rewards")
	_ = declareReward("gate", newGate, "one reward where another reaches a threshold, else a third")
	_ = declareReward("clip", newClip, "a reward within bounds")
	_ = declareReward("scale", newScale, "a reward times a factor, and more")
	_ = declareReward("min", fold("min", math.Inf(1), func(so, v float64) (float64, bool) { return min(so, v), false }), "the least of a list of rewards")
	_ = declareReward("max", fold("max", math.Inf(-1), func(so, v float64) (float64, bool) { return max(so, v), false }), "the greatest of a list of rewards")
	_ = declareReward("product", fold("product", 1, func(so, v float64) (float64, bool) { return so * v, false }), "the product of a list of rewards")
	// 0 if none is not 0; the rewards after the first that is not are not computed
	_ = declareReward("first_non_zero", fold("first_non_zero", 0, func(_, v float64) (float64, bool) { return v, v != 0 }), "of a list of rewards the first that is not 0")
)
