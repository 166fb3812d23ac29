package rewards

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// withValues is a builder with rewards that have fixed values, and one that counts how often it is asked.
func withValues(t *testing.T, asked *int) *Builder {
	r := Prebuilt()
	for name, v := range map[string]float64{"zero": 0, "third": 1.0 / 3, "one": 1, "two": 2, "minus": -1, "nan": math.NaN()} {
		require.NoError(t, r.Register(NewFunc(name, func(context.Context, Input) (float64, error) { return v, nil })))
	}
	require.NoError(t, r.Register(NewFunc("asked", func(context.Context, Input) (float64, error) {
		*asked++
		return 5, nil
	})))
	require.NoError(t, r.Register(NewFunc("broken", func(context.Context, Input) (float64, error) { return 0, errors.New("no luck") })))
	return builder(t, r)
}

func TestCombinators(t *testing.T) {
	asked := 0
	b := withValues(t, &asked)
	for name, c := range map[string]struct {
		reward string
		params map[string]any
		want   Score
		asked  int
	}{
		"gate open":        {"gate", map[string]any{"if": "one", "then": "two"}, Score{2, map[string]float64{"open": 1, "if": 1, "then": 2}}, 0},
		"gate shut":        {"gate", map[string]any{"if": "third", "then": "asked"}, Score{0, map[string]float64{"open": 0, "if": 1.0 / 3, "else": 0}}, 0},
		"gate threshold":   {"gate", map[string]any{"if": "third", "threshold": 0.3, "then": "asked"}, Score{5, map[string]float64{"open": 1, "if": 1.0 / 3, "then": 5}}, 1},
		"gate else":        {"gate", map[string]any{"if": "zero", "then": 1, "else": -0.5}, Score{-0.5, map[string]float64{"open": 0, "if": 0, "else": -0.5}}, 0},
		"gate else reward": {"gate", map[string]any{"if": "zero", "then": 1, "else": map[string]any{"name": "scale", "of": "two", "by": 0.1}}, Score{0.2, map[string]float64{"open": 0, "if": 0, "else": 0.2, "else.two": 2}}, 0},
		"clip above":       {"clip", map[string]any{"of": "two", "max": 1.5}, Score{1.5, map[string]float64{"two": 2}}, 0},
		"clip below":       {"clip", map[string]any{"of": "minus", "min": 0, "max": 1}, Score{0, map[string]float64{"minus": -1}}, 0},
		"scale":            {"scale", map[string]any{"of": "two", "by": -0.5, "add": 3}, Score{2, map[string]float64{"two": 2}}, 0},
		"sum":              {"sum", map[string]any{"of": []any{"one", map[string]any{"name": "two", "weight": 0.25}}}, Score{1.5, map[string]float64{"one": 1, "two": 2}}, 0},
		"min":              {"min", map[string]any{"of": []any{"one", "minus", "two"}}, Score{-1, map[string]float64{"one": 1, "minus": -1, "two": 2}}, 0},
		"max":              {"max", map[string]any{"of": []any{"one", "minus", "two"}}, Score{2, map[string]float64{"one": 1, "minus": -1, "two": 2}}, 0},
		"product":          {"product", map[string]any{"of": []any{"two", "minus", 3}}, Score{-6, map[string]float64{"two": 2, "minus": -1, "3": 3}}, 0},
		"first non zero":   {"first_non_zero", map[string]any{"of": []any{"zero", "minus", "asked"}}, Score{-1, map[string]float64{"zero": 0, "minus": -1}}, 0},
		"all zero":         {"first_non_zero", map[string]any{"of": []any{"zero"}}, Score{0, map[string]float64{"zero": 0}}, 0},
		"renamed": {"sum", map[string]any{"of": []any{
			map[string]any{"name": "scale", "as": "half", "of": "two", "by": 0.5}, map[string]any{"name": "scale", "of": "two"},
		}}, Score{3, map[string]float64{"half": 1, "half.two": 2, "scale": 2, "scale.two": 2}}, 0},
		"deep": {"clip", map[string]any{"max": 1, "of": map[string]any{"name": "max", "of": []any{map[string]any{"name": "gate", "if": "one", "then": "asked"}}}}, Score{1, map[string]float64{"max": 5, "max.gate": 5, "max.gate.open": 1, "max.gate.if": 1, "max.gate.then": 5}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			r, err := b.Make(c.reward, c.params)
			require.NoError(t, err)
			require.Equal(t, c.reward, r.Name())
			got, err := r.Score(t.Context(), input(nil))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.asked, asked)
		})
	}
}

func TestCombinatorsRefuse(t *testing.T) {
	asked := 0
	b := withValues(t, &asked)
	for want, c := range map[string]struct {
		reward string
		params map[string]any
	}{
		"rewards: gate: if: a reward is needed: a name, {name: NAME, parameter: value} or a number":                             {"gate", map[string]any{"then": 1}},
		"rewards: gate: then: a reward is needed: a name, {name: NAME, parameter: value} or a number":                           {"gate", map[string]any{"if": 1}},
		`rewards: gate: the parameters cannot be read: unknown field "when"; allowed: if, threshold, then, else; nearest: then`: {"gate", map[string]any{"when": 1}},
		`rewards: gate: then: f1: the parameters cannot be read: unknown field "strict"; allowed: field`:                        {"gate", map[string]any{"if": "one", "then": map[string]any{"name": "f1", "strict": true}}},
		"rewards: gate: then: the key name is missing; write {name: NAME, parameter: value}":                                    {"gate", map[string]any{"if": "one", "then": map[string]any{}}},
		"rewards: gate: then: a []interface {} is no reward; write a name, {name: NAME, parameter: value} or a number":          {"gate", map[string]any{"if": "one", "then": []any{}}},
		"rewards: gate: if: a weight has no meaning here; use scale":                                                            {"gate", map[string]any{"if": map[string]any{"name": "one", "weight": 2}, "then": 1}},
		"rewards: clip: min or max is needed, and min must not be above max":                                                    {"clip", map[string]any{"of": "one"}},
		"rewards: sum: of: a list of rewards is needed, such as [f1, {name: tags, tags: [think, answer]}]":                      {"sum", map[string]any{"of": "one"}},
		"rewards: sum: of.1: one is given twice; give one of the two another name with as: NAME":                                {"sum", map[string]any{"of": []any{"one", "one"}}},
		"rewards: max: of.0: a weight has no meaning here; use scale":                                                           {"max", map[string]any{"of": []any{map[string]any{"name": "one", "weight": 2}}}},
		"rewards: one: as must be a name of 1 to 64 letters, digits, _ or -":                                                    {"one", map[string]any{"as": "a b"}},
	} {
		_, err := b.Make(c.reward, c.params)
		require.EqualError(t, err, want)
	}
	_, err := b.Make("gate", map[string]any{"if": "one", "then": map[string]any{"name": "max", "of": []any{"two", map[string]any{"name": "clip", "of": "one"}}}})
	require.EqualError(t, err, "rewards: gate: then: max: of.1: clip: min or max is needed, and min must not be above max")
	require.Equal(t, []string{"then", "of", "1"}, Keys(err))
	_, err = b.Make("scale", map[string]any{"of": "onne"})
	require.ErrorContains(t, err, `rewards: scale: of: there is no reward "onne" (did you mean "one"?); the rewards are `)

	for want, params := range map[string]map[string]any{
		"scale: broken: no luck":                            {"of": "broken"},
		"scale: nan: the value is NaN, not a finite number": {"of": "nan"},
		"scale: the value is +Inf, not a finite number":     {"of": "two", "by": math.MaxFloat64},
		"scale: scale: broken: no luck":                     {"of": map[string]any{"name": "scale", "of": "broken"}},
	} {
		r, err := b.Make("scale", params)
		require.NoError(t, err)
		_, err = Run(t.Context(), 0x7fffffffffffffff, r, input(nil))
		require.EqualError(t, err, "rewards: "+want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := b.Make("scale", map[string]any{"of": "asked"})
	require.NoError(t, err)
	_, err = r.Score(ctx, input(nil))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, asked)
}
