package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func builder(t *testing.T, r *Registry) *Builder {
	res := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, res.Close()) })
	return r.Builder(t.Context(), res)
}

func prebuilt(t *testing.T) *Builder { return builder(t, Prebuilt()) }

// call is a turn whose call returned an observation.
func call(observation string) trajectory.Turn {
	return trajectory.Turn{Results: []trajectory.ToolResult{{Call: trajectory.ToolCall{Name: "calculator"}, Observation: observation}}}
}

func failed(observation string) trajectory.Turn {
	t := call(observation)
	t.Results[0].Failed = true
	return t
}

func answer(text string) trajectory.Turn {
	return trajectory.Turn{FinalAnswer: text, AnsweredThisTurn: true}
}

func input(fields map[string]any, turns ...trajectory.Turn) Input {
	return Input{Task: trajectory.Task{ID: "t1", Fields: fields}, Trajectory: &trajectory.Trajectory{Turns: turns}}
}

func TestCalculatorRewards(t *testing.T) {
	right := map[string]any{"answer": "936"}
	steps := map[string]any{"answer": "12", "steps": []any{"10", 12.0}}
	unreadable := trajectory.Turn{ParseErrors: 1, Results: []trajectory.ToolResult{{Failed: true}}}
	// final requires a tool; total is 0.8 final + 0.2 call.
	for name, c := range map[string]struct {
		in                         Input
		final, call, format, total float64
	}{
		"call, then answer":             {input(right, call("936"), answer("936")), 1, 1, 1, 1},
		"answer by value":               {input(map[string]any{"answer": 936.0}, call("936"), answer("936.0")), 1, 1, 1, 1},
		"answer without a call":         {input(right, answer("936")), 0, 0, 1, 0},
		"right call alone":              {input(right, call("936")), 0, 1, 0, 0.2},
		"right call, wrong answer":      {input(right, call("936"), answer("935")), 0, 1, 1, 0.2},
		"wrong call, right answer":      {input(right, call("1"), answer("936")), 1, 0, 1, 0.8},
		"failed call, right answer":     {input(right, failed("936"), answer("936")), 0, 0, 1, 0},
		"second call repairs the first": {input(right, call("1"), call("936"), answer("936")), 1, 1, 1, 1},
		"unreadable call, then right":   {input(right, unreadable, call("936"), answer("936")), 1, 1, 2.0 / 3, 1},
		"text only":                     {input(right, trajectory.Turn{Completion: "936"}), 0, 0, 0, 0},
		"no turn":                       {input(right), 0, 0, 0, 0},
		"two steps":                     {input(steps, call("10"), call("12"), answer("12")), 1, 1, 1, 1},
		"first of two steps":            {input(steps, call("10")), 0, 0.5, 0, 0.1},
		"same turn":                     {input(right, trajectory.Turn{Results: call("936").Results, FinalAnswer: "936", AnsweredThisTurn: true}), 0, 1, 1, 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			final, err := prebuilt(t).Make("final_answer", map[string]any{"require_tool": true})
			require.NoError(t, err)
			rightCall, err := prebuilt(t).Make("right_call", nil)
			require.NoError(t, err)
			format, err := prebuilt(t).Make("format", nil)
			require.NoError(t, err)
			total, err := NewSum(0, Weighted{final, 0.8}, Weighted{rightCall, 0.2}, Weighted{format, 0})
			require.NoError(t, err)
			got, err := total.Score(t.Context(), c.in)
			require.NoError(t, err)
			require.Equal(t, map[string]float64{"final_answer": c.final, "right_call": c.call, "format": c.format}, got.Parts)
			require.InDelta(t, c.total, got.Value, 1e-15)
		})
	}
}

func TestFinalAnswerParams(t *testing.T) {
	make1 := func(params map[string]any) Reward {
		r, err := prebuilt(t).Make("final_answer", params)
		require.NoError(t, err)
		return r
	}
	score := func(r Reward, in Input) float64 {
		s, err := r.Score(t.Context(), in)
		require.NoError(t, err)
		return s.Value
	}
	require.Equal(t, 1.0, score(make1(nil), input(map[string]any{"answer": "Rome"}, answer(" rome "))))
	require.Equal(t, 1.0, score(make1(map[string]any{"field": "city"}), input(map[string]any{"city": json.Number("7")}, answer("7"))))
	other := make1(map[string]any{"require_tool": true, "tool": "search"})
	require.Equal(t, 0.0, score(other, input(map[string]any{"answer": "1"}, call("1"), answer("1"))))
	steps := map[string]any{"answer": "12", "steps": []any{"10", "12"}}
	both := make1(map[string]any{"require_steps": true})
	require.Equal(t, 1.0, score(both, input(steps, call("10"), call("12"), answer("12"))))
	require.Equal(t, 0.0, score(both, input(steps, call("12"), answer("12"))))
	require.Equal(t, 0.0, score(both, input(steps, call("12"), answer("12"), call("10"))), "the second result came after the answer")
	_, err := make1(nil).Score(t.Context(), input(nil, answer("1")))
	require.EqualError(t, err, `task "t1" has no field "answer"; add the column to the data or name another one`)
	_, err = make1(nil).Score(t.Context(), input(map[string]any{"answer": []any{}}, answer("1")))
	require.EqualError(t, err, `task "t1": the field "answer" must be a string or a number`)

	_, err = prebuilt(t).Make("final_answer", map[string]any{"tool": "x"})
	require.EqualError(t, err, "rewards: final_answer: the parameter tool needs require_tool: true")
	_, err = prebuilt(t).Make("final_answer", map[string]any{"requires_tool": true})
	require.EqualError(t, err, `rewards: final_answer: the parameters cannot be read: unknown field "requires_tool"; allowed: field, require_tool, tool, require_steps, steps; nearest: require_tool`)
	_, err = prebuilt(t).Make("final_answer", map[string]any{"require_tool": "yes"})
	require.EqualError(t, err, "rewards: final_answer: the parameter require_tool must be of type bool, got a string")
	_, err = prebuilt(t).Make("format", map[string]any{"x": 1})
	require.ErrorContains(t, err, `unknown field "x"`)

	r, err := prebuilt(t).Make("right_call", nil)
	require.NoError(t, err)
	for _, bad := range []any{"10", []any{}, []any{nil}} {
		_, err := r.Score(t.Context(), input(map[string]any{"steps": bad}))
		require.Error(t, err)
	}
}

func TestRegistry(t *testing.T) {
	r := Prebuilt()
	require.Equal(t, []string{
		"best_delta", "clip", "code_tests", "command", "cosine_length", "environment", "exact_match", "f1", "final_answer", "first_non_zero", "format", "gate", "human_rank", "infoseek_reward", "judge",
		"length", "mask_found", "mask_recall", "math_equal", "math_equal_reward", "math_equal_reward_think", "math_equal_reward_tool", "max", "min", "ok_vqa_reward", "pattern", "posted", "product",
		"qa_em_format_reward", "qa_em_reward", "qa_em_reward_tool_call", "qa_f1_reward", "qa_f1_reward_tool", "repetition", "right_call", "scale", "search_r1", "sum", "tags", "tool_cost",
	}, r.Names())
	for _, name := range r.Names() {
		require.NotEmpty(t, r.Description(name), name)
	}
	one := NewFunc("one", func(context.Context, Input) (float64, error) { return 1, nil })
	require.NoError(t, r.Register(one))
	require.EqualError(t, r.Register(one), `rewards: register "one": the name is already registered; give one of the two another name`)
	require.EqualError(t, r.Register(nil), "rewards: register: the reward is nil")
	require.EqualError(t, r.Add("a b", "", newFormat), `rewards: register "a b": a name has 1 to 64 letters, digits, _ or -`)
	require.EqualError(t, r.Add("x", "", nil), `rewards: register "x": the factory is nil`)
	_, err := builder(t, r).Make("two", nil)
	require.ErrorContains(t, err, `rewards: there is no reward "two"; the rewards are best_delta, clip, `)
	_, err = builder(t, r).Make("one", map[string]any{"x": 1})
	require.ErrorContains(t, err, `rewards: one: the parameters cannot be read: unknown field "x"`)
	got, err := builder(t, r).Make("one", nil)
	require.NoError(t, err)
	require.Equal(t, "one", got.Name())
}

func TestSumRefuses(t *testing.T) {
	value := func(v float64) Reward {
		return NewFunc("v", func(context.Context, Input) (float64, error) { return v, nil })
	}
	part := func(v float64) Reward {
		return NewFuncParts("p", func(context.Context, Input) (Score, error) { return Score{1, map[string]float64{"x": v}}, nil })
	}
	score := func(terms ...Weighted) (Score, error) {
		s, err := NewSum(0, terms...)
		require.NoError(t, err)
		return s.Score(t.Context(), input(nil))
	}
	got, err := score(Weighted{value(0.5), 2}, Weighted{part(3), -1})
	require.NoError(t, err)
	require.Equal(t, Score{0, map[string]float64{"v": 0.5, "p": 1, "p.x": 3}}, got)

	_, err = score(Weighted{value(math.NaN()), 0})
	require.EqualError(t, err, "rewards: v: the value is NaN, not a finite number")
	_, err = score(Weighted{value(math.Inf(1)), 1})
	require.EqualError(t, err, "rewards: v: the value is +Inf, not a finite number")
	_, err = score(Weighted{part(math.NaN()), 1})
	require.EqualError(t, err, `rewards: p: the part "x" is NaN, not a finite number`)
	_, err = score(Weighted{value(math.MaxFloat64), math.MaxFloat64})
	require.EqualError(t, err, "rewards: the weighted sum is +Inf")
	_, err = score(Weighted{NewFunc("p", func(context.Context, Input) (float64, error) { panic("boom") }), 1})
	require.EqualError(t, err, "rewards: p: panic: boom")
	broken := errors.New("no judge")
	_, err = score(Weighted{NewFunc("p", func(context.Context, Input) (float64, error) { return 1, broken }), 1})
	require.ErrorIs(t, err, broken)

	_, err = NewSum(0)
	require.EqualError(t, err, "rewards: no reward is given; name at least one")
	_, err = NewSum(0, Weighted{nil, 1})
	require.EqualError(t, err, "rewards: a reward is nil")
	_, err = NewSum(0, Weighted{value(1), 1}, Weighted{value(1), 1})
	require.EqualError(t, err, "rewards: v is given twice; give it one weight, or another name with as: NAME")
	_, err = NewSum(0, Weighted{value(1), math.NaN()})
	require.EqualError(t, err, "rewards: v: the weight NaN is not a finite number")
}

func TestRunDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		deaf := NewFunc("deaf", func(context.Context, Input) (float64, error) { <-free; return 1, nil })
		_, err := Run(t.Context(), time.Second, deaf, Input{})
		require.EqualError(t, err, "rewards: deaf: no score after 1s: context deadline exceeded")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = Run(ctx, time.Second, deaf, Input{})
		require.ErrorIs(t, err, context.Canceled)
		close(free)
	})
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"936", "936", true},
		{"936", "0936", true},
		{"936.0", "936", true},
		{"1,234", "1234", true},
		{"1/2", "0.5", true},
		{"-3", "−3", true},
		{" 7 ", "7", true},
		{"Paris", "paris", true},
		{"+5", "5", true},
		{"2/4", "1/2", true},
		{"936", "935", false},
		{"12,34", "1234", false},
		{"936 apples", "936", false},
		{"1/0", "1", false},
		{"1e2", "100", true},
		{"", "0", false},
		{"NaN", "0", false},
		{"9" + "36", "936.00000000000000000001", false},
		{"0.00001", "1e-05", true},
		{"1000", "1e3", true},
		{"1,000", "1E+3", true},
		{"10000000000000000", "1e+16", true},
		{".5", "0.5", true},
		{"-.5", "-1/2", true},
		{"5.", "5", true},
		{"1.5e3", "1500", true},
		{"1000", "1e4", false},
		{"0.0001", "1e-05", false},
		{".", "0", false},
		{"e3", "1000", false},
		{"5.", "5.1", false},
		{"1e1000000000", "1e1000000000", true}, // as text
		{"1e1000000000", "1e1000000001", false},
		{"1e1001", "10e1000", false}, // beyond the bound only as text
		{"1e999", "10e998", true},
		{"1/2e1", "0.05", false},
	} {
		require.Equal(t, c.want, Equal(c.a, c.b), "%q, %q", c.a, c.b)
		require.Equal(t, c.want, Equal(c.b, c.a), "%q, %q", c.b, c.a)
	}
}

func FuzzEqual(f *testing.F) {
	f.Add("936", "936.0")
	f.Add("1/3", "1e9999999999")
	f.Add("1,234", "−")
	f.Fuzz(func(t *testing.T, a, b string) {
		require.Equal(t, Equal(a, b), Equal(b, a))
		require.True(t, Equal(a, a))
	})
}

// A factory of a reward that panics, or makes nothing, is an error that names the reward.
func TestAFactoryThatPanicsIsAnError(t *testing.T) {
	r := Prebuilt()
	require.NoError(t, r.Add("index", "", func(*Builder, map[string]any) (Reward, error) { panic("no index") }))
	require.NoError(t, r.Add("none", "", func(*Builder, map[string]any) (Reward, error) { return nil, nil }))
	b := r.Builder(t.Context(), nil)
	_, err := b.Make("index", nil)
	require.Regexp(t, `^rewards: index: its factory panicked: no index, at \S+rewards_test\.go:\d+$`, err.Error())
	_, err = b.Make("none", nil)
	require.EqualError(t, err, "rewards: none: its factory returned no reward")
}
