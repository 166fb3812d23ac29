package rewards

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func said(completions ...string) []trajectory.Turn {
	out := make([]trajectory.Turn, len(completions))
	for i, c := range completions {
		out[i] = trajectory.Turn{Completion: c}
	}
	return out
}

func TestTags(t *testing.T) {
	strict, loose := made(t, "tags", nil), made(t, "tags", map[string]any{"loose": true})
	every := made(t, "tags", map[string]any{"in": "every", "tags": []any{"think"}})
	for text, want := range map[string][2]float64{
		"<think>a</think><answer>b</answer>":                   {1, 1},
		" <think>a</think>\n<answer>b</answer>\n":              {1, 1},
		"<think></think><answer></answer>":                     {1, 1},
		"Well, <think>a</think> so <answer>b</answer>!":        {0, 1},
		"<answer>b</answer><think>a</think>":                   {0, 0}, // order
		"<think>a</think>":                                     {0, 0}, // missing
		"<think>a</think><think>a</think><answer>b</answer>":   {0, 0}, // twice
		"<think>a<answer>b</answer></think>":                   {0, 0}, // nested
		"<think>a</think><answer>b":                            {0, 0}, // open
		"</think>a<think><answer>b</answer>":                   {0, 0},
		"<think>a</think><answer>b</answer><answer>c</answer>": {0, 0},
		"<think>a <answer> b</think><answer>b</answer>":        {0, 0},
		"": {0, 0},
	} {
		require.Equal(t, want[0], scored(t, strict, input(nil, said(text)...)).Value, text)
		require.Equal(t, want[1], scored(t, loose, input(nil, said(text)...)).Value, text)
	}
	require.Equal(t, 0.5, scored(t, every, input(nil, said("<think>a</think>", "b")...)).Value)
	require.Zero(t, scored(t, strict, input(nil)).Value, "no turn")
	behind := trajectory.Turn{Completion: "a\n</think>\n\n<answer>b</answer>"}
	require.Zero(t, scored(t, strict, input(nil, behind)).Value, "nobody opened the thought")
	behind.InThought = true
	require.Equal(t, 1.0, scored(t, strict, input(nil, behind)).Value, "the prompt opened the thought")
	require.Equal(t, 1.0, scored(t, every, input(nil, trajectory.Turn{Completion: "a</think>", InThought: true})).Value)
	behind.Completion = "<think>" + behind.Completion
	require.Zero(t, scored(t, strict, input(nil, behind)).Value, "twice")
	refused(t, "tags", map[string]any{"tags": []any{"a", "a"}}, `rewards: tags: the parameter tags: "a" is no name of a tag, or given twice`)
	refused(t, "tags", map[string]any{"tags": []any{}}, "rewards: tags: the parameter tags is an empty list; name at least one tag")
	refused(t, "tags", map[string]any{"in": "answer"}, `rewards: tags: the parameter in is "answer"; allowed: completion, every`)
}

func TestPattern(t *testing.T) {
	number := made(t, "pattern", map[string]any{"pattern": `\d+`, "in": "answer"})
	require.Equal(t, 1.0, scored(t, number, input(nil, answer(" 42 "))).Value)
	require.Zero(t, scored(t, number, input(nil, answer("x42"))).Value, "the whole answer must match")
	require.Zero(t, scored(t, number, input(nil, said("42")...)).Value, "no answer")
	either := made(t, "pattern", map[string]any{"pattern": "a|b"})
	require.Equal(t, 1.0, scored(t, either, input(nil, said("x", "b")...)).Value, "the last completion")
	require.Zero(t, scored(t, either, input(nil, said("ab")...)).Value)
	all := made(t, "pattern", map[string]any{"pattern": "a|b", "in": "every"})
	require.Equal(t, 2.0/3, scored(t, all, input(nil, said("a", "b", "c")...)).Value)
	thought := made(t, "pattern", map[string]any{"pattern": "(?s)<think>.*</think>.*"})
	require.Equal(t, 1.0, scored(t, thought, input(nil, trajectory.Turn{Completion: "a</think>b", InThought: true})).Value, "the prompt opened the thought")
	refused(t, "pattern", map[string]any{}, "rewards: pattern: the parameter pattern is missing: a regular expression")
	refused(t, "pattern", map[string]any{"pattern": "("}, "rewards: pattern: the parameter pattern: error parsing regexp: missing closing ): `(`")
	refused(t, "pattern", map[string]any{"pattern": `\d+)|(\d+`}, "rewards: pattern: the parameter pattern: error parsing regexp: unexpected ): `\\d+)|(\\d+`")
	refused(t, "pattern", map[string]any{"pattern": "a", "in": "x"}, `rewards: pattern: the parameter in is "x"; allowed: answer, completion, every`)
}

// sampled is a trajectory with so many response tokens.
func sampled(n int, turns ...trajectory.Turn) Input {
	in := input(map[string]any{"answer": "1"}, turns...)
	s := &trajectory.Sample{}
	if err := s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n)); err != nil {
		panic(err)
	}
	in.Trajectory.Samples = []*trajectory.Sample{s}
	return in
}

func TestToolCost(t *testing.T) {
	slow, broken := call("1"), failed("Error: no")
	slow.Results[0].Duration = 1500 * time.Millisecond
	other := call("x")
	other.Results[0].Call.Name = "search"
	in := sampled(2000, slow, broken, other)
	cost := func(params map[string]any) float64 { return scored(t, made(t, "tool_cost", params), in).Value }
	require.InDelta(t, -0.3, cost(map[string]any{"per_call": 0.1}), 1e-15)
	require.InDelta(t, -0.2, cost(map[string]any{"per_call": 0.1, "free": 1}), 1e-15)
	require.InDelta(t, -0.2, cost(map[string]any{"per_call": 0.1, "tool": "calculator"}), 1e-15)
	require.InDelta(t, -0.25, cost(map[string]any{"per_call": 0.1, "max": 0.25}), 1e-15)
	require.InDelta(t, -0.75, cost(map[string]any{"per_second": 0.5}), 1e-15)
	require.InDelta(t, -0.2, cost(map[string]any{"per_1000_tokens": 0.1}), 1e-15)
	require.InDelta(t, -0.05, cost(map[string]any{"per_failed": 0.05}), 1e-15)
	s := scored(t, made(t, "tool_cost", map[string]any{"per_call": 1, "free": 9}), in)
	require.Equal(t, Score{0, map[string]float64{"calls": 3, "failed": 1, "seconds": 1.5}}, s)
	refused(t, "tool_cost", nil, "rewards: tool_cost: no price is given; set per_call, per_failed, per_second or per_1000_tokens")
	refused(t, "tool_cost", map[string]any{"per_call": -0.1}, "rewards: tool_cost: the parameter per_call is -0.1; it must be 0 or more, for the value is a penalty already")
}

// TestLength holds DAPO's soft overlong punishment with its own numbers: L_max 20480, L_cache 4096 (arXiv 2503.14476, section 4.1).
func TestLength(t *testing.T) {
	r := made(t, "length", map[string]any{"budget": 16384, "buffer": 4096})
	for n, want := range map[int]float64{0: 0, 16384: 0, 18432: -0.5, 20480: -1, 30000: -1} {
		require.Equal(t, want, scored(t, r, sampled(n)).Value, n)
	}
	turns := made(t, "length", map[string]any{"budget": 1, "buffer": 2, "of": "turns"})
	require.Equal(t, -0.5, scored(t, turns, input(nil, said("a", "b")...)).Value)
	characters := made(t, "length", map[string]any{"budget": 2, "buffer": 4, "of": "characters"})
	require.Equal(t, -0.25, scored(t, characters, input(nil, said("é", "ab")...)).Value)
	refused(t, "length", map[string]any{"budget": 3}, "rewards: length: the parameters budget (0 or more) and buffer (above 0) are needed, in units of what is counted")
	refused(t, "length", map[string]any{"budget": 3, "buffer": 1, "of": "words"}, `rewards: length: the parameter of is "words"; allowed: tokens, turns, characters`)
}

// TestCosineLength holds the cosine reward at the points where the cosine is known: cos 0, π/3, π/2 and 2π/3.
func TestCosineLength(t *testing.T) {
	r := made(t, "cosine_length", map[string]any{"if": "final_answer", "max_tokens": 1200})
	right, wrong := answer("1"), answer("2")
	for _, c := range []struct {
		n            int
		right, wrong float64
	}{{0, 1, -1}, {400, 0.875, -0.875}, {600, 0.75, -0.75}, {800, 0.625, -0.625}, {1200, -1, -1}, {5000, -1, -1}} {
		require.InDelta(t, c.right, scored(t, r, sampled(c.n, right)).Value, 1e-12, c.n)
		require.InDelta(t, c.wrong, scored(t, r, sampled(c.n, wrong)).Value, 1e-12, c.n)
	}
	steep := made(t, "cosine_length", map[string]any{"if": "final_answer", "max_tokens": 100, "right_short": 2, "right_long": 1, "wrong_short": -10, "wrong_long": 0, "beyond_length": -10})
	require.InDelta(t, 1.5, scored(t, steep, sampled(50, right)).Value, 1e-12)
	require.InDelta(t, -5, scored(t, steep, sampled(50, wrong)).Value, 1e-12)
	s := scored(t, steep, sampled(100, right))
	require.Equal(t, Score{-10, map[string]float64{"tokens": 100, "final_answer": 1}}, s)
	refused(t, "cosine_length", map[string]any{"max_tokens": 5}, "rewards: cosine_length: if: a reward is needed: a name, {name: NAME, parameter: value} or a number")
	refused(t, "cosine_length", map[string]any{"if": "f1"}, "rewards: cosine_length: the parameter max_tokens is needed: the length at which the value no longer changes")
}

func TestRepetition(t *testing.T) {
	r := made(t, "repetition", map[string]any{"words": 2})
	require.Zero(t, scored(t, r, input(nil, said("a b c d")...)).Value)
	require.InDelta(t, -1.0/3, scored(t, r, input(nil, said("a b A B")...)).Value, 1e-15) // ab, ba, ab
	require.Zero(t, scored(t, r, input(nil, said("a", "a")...)).Value, "no pairs")
	refused(t, "repetition", map[string]any{"words": 0}, "rewards: repetition: the parameter words must be 1 or more")
}
