package rewards

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func made(t *testing.T, name string, params map[string]any) Reward {
	t.Helper()
	r, err := prebuilt(t).Make(name, params)
	require.NoError(t, err)
	return r
}

func scored(t *testing.T, r Reward, in Input) Score {
	t.Helper()
	s, err := r.Score(t.Context(), in)
	require.NoError(t, err)
	return s
}

func refused(t *testing.T, name string, params map[string]any, want string) {
	t.Helper()
	_, err := prebuilt(t).Make(name, params)
	require.EqualError(t, err, want)
}

// TestNormalize spells out SQuAD's normalisation.
func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"The Eiffel Tower!":             "eiffel tower",
		"  An apple,\ta  day ":          "apple day",
		"a.n. other":                    "other", // punctuation goes before articles
		"U.S.A.":                        "usa",
		"the-end":                       "theend",
		"café a la carte":               "café la carte",
		"caféa":                         "caféa",
		"Théâtre":                       "théâtre",
		"“quoted”":                      "“quoted”", // only ASCII punctuation goes
		"a_b":                           "ab",
		"1,234":                         "1234",
		"":                              "",
		"the":                           "",
		"x\u00a0y\x1cz":                 "x y z",
		"Athens, the capital of a land": "athens capital of land",
	} {
		require.Equal(t, want, normalize(in, true), in)
	}
}

func TestExactMatchAndF1(t *testing.T) {
	exact, f1 := made(t, "exact_match", nil), made(t, "f1", nil)
	for _, c := range []struct {
		gold   any
		answer string
		em     float64
		f1     float64
	}{
		{"The Eiffel Tower", "eiffel tower.", 1, 1},
		{"Paris", "Paris, France", 0, 2.0 / 3},           // p 1/2, r 1
		{"Barack Hussein Obama", "Barack Obama", 0, 0.8}, // p 1, r 2/3
		{[]any{"NYC", "New York City"}, "new york city", 1, 1},
		{[]any{"NYC", "New York City"}, "York", 0, 0.5}, // p 1, r 1/3
		{"b b c", "b b b", 0, 2.0 / 3},                  // two of three, with repetition
		{"yes", "yes it is", 0, 0},                      // HotpotQA's rule
		{"yes it is", "yes", 0, 0},
		{"yes", "Yes.", 1, 1},
		{"Rome", "Oslo", 0, 0},
		{"Rome", "", 0, 0},
		{"A", "a", 1, 1}, // a choice, not an article
		{"A", "the", 0, 0},
		{"A", "", 0, 0},
		{"?", "?", 1, 1},
		{"?", "!", 0, 0},
		{42.0, "42", 1, 1},
	} {
		in := input(map[string]any{"answer": c.gold}, answer(c.answer))
		require.Equal(t, c.em, scored(t, exact, in).Value, "%v ;; %s", c.gold, c.answer)
		s := scored(t, f1, in)
		require.InDelta(t, c.f1, s.Value, 1e-15, "%v ;; %s", c.gold, c.answer)
		require.Equal(t, c.em, s.Parts["em"])
	}
	s := scored(t, f1, input(map[string]any{"answer": "Barack Hussein Obama"}, answer("Barack Obama")))
	require.Equal(t, 1.0, s.Parts["precision"])
	require.InDelta(t, 2.0/3, s.Parts["recall"], 1e-15)

	none := input(map[string]any{"answer": "x"}, trajectory.Turn{Completion: "x"})
	require.Zero(t, scored(t, exact, none).Value, "no final answer")
	require.Zero(t, scored(t, f1, none).Value)
	_, err := exact.Score(t.Context(), input(map[string]any{"answer": []any{}}, answer("x")))
	require.EqualError(t, err, `task "t1": the field "answer" is an empty list; it must hold a right answer`)
	_, err = exact.Score(t.Context(), input(map[string]any{"answer": []any{nil}}, answer("x")))
	require.EqualError(t, err, `task "t1": answer[0] must be a string or a number`)
	refused(t, "f1", map[string]any{"golds": 1}, `rewards: f1: the parameters cannot be read: unknown field "golds"; allowed: field`)
}

// TestQAScores holds normalisation, exact match and F1 against Python (scripts/goldens/qa_scores.py).
func TestQAScores(t *testing.T) {
	data, err := os.ReadFile("testdata/qa.json")
	require.NoError(t, err)
	var cases []struct {
		Gold, Answer, Normal string
		EM, F1               float64
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 400)
	for _, c := range cases {
		require.Equal(t, c.Normal, normalize(c.Answer, true), "%q", c.Answer)
		require.Equal(t, c.EM, bestMatch(c.Answer, []string{c.Gold}), "%q ;; %q", c.Gold, c.Answer)
		require.InDelta(t, c.F1, tokenOverlap(c.Answer, c.Gold).f1, 1e-15, "%q ;; %q", c.Gold, c.Answer)
	}
}

// FuzzOverlap: bounds, symmetry, and that an exact match has the F1 of one.
func FuzzOverlap(f *testing.F) {
	f.Add("the cat", "a cat sat")
	f.Add("yes", "no")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := tokenOverlap(a, b), tokenOverlap(b, a)
		for _, v := range []float64{x.f1, x.precision, x.recall} {
			require.True(t, v >= 0 && v <= 1, "%v", v)
		}
		if normalize(a, true) != "" && normalize(b, true) != "" {
			require.InDelta(t, x.f1, y.f1, 1e-12)
			require.InDelta(t, x.precision, y.recall, 1e-12)
		}
		require.Equal(t, tokenScore{1, 1, 1}, tokenOverlap(a, a))
		require.Equal(t, 1.0, bestMatch(a, []string{b, a}))
		require.Equal(t, normalize(a, true), strings.TrimSpace(normalize(a, true)))
	})
}

// TestMathEqualOfText shows that text with digits equals itself, and that a part of a ratio or of a time is no answer.
func TestMathEqualOfText(t *testing.T) {
	for _, gold := range []string{
		"3:4", "11:00", "11:00 AM", "4:30", "3:45 p.m.", "1:2:3", "June 20", "Route 66", "Q3 2020", "3 hours 20 minutes", "5 feet 3 inches", "3 mod 7",
	} {
		task := map[string]any{"answer": gold}
		assert.Equal(t, 1.0, scored(t, made(t, "math_equal", nil), input(task, answer(gold))).Value, gold)
		assert.Equal(t, 1.0, scored(t, made(t, "math_equal_reward", nil), input(task, answer(gold))).Value, gold)
	}
	for _, c := range []struct {
		gold, given string
		want        float64
	}{
		{"3:4", "The ratio is 3:4.", 1},
		{"4", "3:4", 0},
		{"3", "3:4", 0},
		{"4", "The ratio of the two is 3:4.", 0},
		{"3:4", "The ratio of the two is 4:3.", 0},
		{"0", "It starts at 11:00 today", 0},
		{"11:00", "It starts at 11:00 today", 1},
		{"25", "In the second step 2: 25", 1},
		{"June 20", "June 21", 0},
		{"June 20", "20", 0},
		{"5", `x = 5, \boxed{6}`, 0},
	} {
		got := scored(t, made(t, "math_equal", nil), input(map[string]any{"answer": c.gold}, answer(c.given)))
		assert.Equal(t, c.want, got.Value, "%s, given %s", c.gold, c.given)
	}
	boxed := made(t, "math_equal", map[string]any{"boxed": true})
	require.Zero(t, scored(t, boxed, input(map[string]any{"answer": "3:4"}, answer("3:4"))).Value)
}

func TestMathEqual(t *testing.T) {
	plain := made(t, "math_equal", nil)
	boxed := made(t, "math_equal", map[string]any{"boxed": true})
	near := made(t, "math_equal", map[string]any{"tolerance": 0.01, "field": "solution"})
	right := map[string]any{"answer": `\frac{1}{2}`}
	require.Equal(t, Score{1, map[string]float64{"extracted": 1}}, scored(t, plain, input(right, answer("The answer is 0.5."))))
	require.Equal(t, Score{1, map[string]float64{"extracted": 1}}, scored(t, plain, input(right, answer(`Thus \boxed{50\%}, I think.`))))
	require.Equal(t, Score{0, map[string]float64{"extracted": 1}}, scored(t, plain, input(right, answer("0.51"))))
	require.Equal(t, Score{0, map[string]float64{"extracted": 0}}, scored(t, plain, input(right, answer(""))))
	require.Equal(t, Score{0, map[string]float64{"extracted": 0}}, scored(t, boxed, input(right, answer("0.5"))))
	require.Equal(t, 1.0, scored(t, boxed, input(right, answer(`\boxed{0.5}`))).Value)
	require.Equal(t, 1.0, scored(t, near, input(map[string]any{"solution": []any{"7", `so \boxed{\pi}`}}, answer("3.14"))).Value)
	require.Zero(t, scored(t, plain, input(right, trajectory.Turn{Completion: "0.5"})).Value, "no final answer")
	refused(t, "math_equal", map[string]any{"tolerance": 1}, "rewards: math_equal: the parameter tolerance is 1; allowed is a number from 0 up to 1")
}
