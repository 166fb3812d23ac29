package rewards

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func maskRecall(t testing.TB, in Input) Score {
	w, err := Prebuilt().Builder(t.Context(), nil).Make("mask_recall", nil)
	require.NoError(t, err)
	s, err := w.Score(t.Context(), in)
	require.NoError(t, err)
	return s
}

func TestMaskRecall(t *testing.T) {
	one := map[string]any{"answers": []any{"Zimbabwe"}}
	name := map[string]any{"answers": []any{"Karl Friedrich Gauss"}}
	two := map[string]any{"answers": []any{"Karl Gauss", 1855}}
	three := map[string]any{"answers": []any{"London", "Rome", "Paris"}}
	for title, c := range map[string]struct {
		in    Input
		value float64
		exact float64
	}{
		"right":                             {input(one, answer("Zimbabwe")), 1, 1},
		"case and outer marks do not count": {input(one, answer(" (zimbabwe).\n")), 1, 1},
		"wrong":                             {input(one, answer("Zambia")), 0, 0},
		"no answer":                         {input(one, call("Zimbabwe")), 0, 0},
		"empty answer":                      {input(one, answer("")), 0, 0},
		"two candidates in one fill":        {input(one, answer("Zambia Zimbabwe")), 0.5, 0},
		"two candidates as two fills":       {input(one, answer("Zambia; Zimbabwe")), 0, 0},
		"on two lines":                      {input(one, answer("Zimbabwe\nZambia")), 0, 0},
		"the same twice":                    {input(one, answer("Zimbabwe; Zimbabwe")), 0, 0},
		"the word twice in one fill":        {input(one, answer("Zimbabwe Zimbabwe")), 0.5, 0},
		"part of a name":                    {input(name, answer("Gauss")), 1. / 3, 0},
		"a name in another order":           {input(name, answer("Gauss, Karl Friedrich")), 1, 0},
		"both":                              {input(two, answer("Karl Gauss; 1855")), 1, 1},
		"both, closed":                      {input(two, answer("Karl Gauss; 1855;")), 1, 1},
		"by number":                         {input(two, answer("[2] 1855; [1] Karl Gauss")), 1, 1},
		"by number with a colon":            {input(two, answer("[1]: Karl Gauss; [2]: 1855")), 1, 1},
		"in the wrong order":                {input(two, answer("1855; Karl Gauss")), 0, 0},
		"one of two":                        {input(two, answer("Karl Gauss")), 0.5, 0.5},
		"the second alone":                  {input(two, answer("[2] 1855")), 0.5, 0.5},
		"a mask filled twice":               {input(two, answer("[1] Karl Gauss; [1] Euler")), 0, 0},
		"a place and its number":            {input(two, answer("[2] 1855; 1855")), 0, 0},
		"a mask that is not there":          {input(two, answer("[3] 1855")), 0, 0},
		"mask zero":                         {input(two, answer("[0] 1855")), 0, 0},
		"the second behind an empty fill":   {input(two, answer("; 1855")), 0.5, 0.5},
		"an empty fill between two":         {input(three, answer("London;; Paris")), 2. / 3, 2. / 3},
		"an empty fill of a blank line":     {input(three, answer("London;\n \n; Paris\n")), 2. / 3, 2. / 3},
		"an empty fill and numbers":         {input(three, answer("[3] Paris;; [1] London")), 2. / 3, 2. / 3},
		"empty fills at the end":            {input(two, answer("Karl Gauss;;;")), 0.5, 0.5},
		"on lines, one of them blank":       {input(three, answer("London\n\nRome\nParis")), 1, 1},
		"on lines and behind a semicolon":   {input(three, answer("London; Rome\nParis")), 1, 1},
		"an empty fill and three more":      {input(three, answer("; London; Rome; Paris")), 0, 0},
		"three fills for two masks":         {input(two, answer("Karl Gauss; 1855; Euler")), 0, 0},
	} {
		t.Run(title, func(t *testing.T) {
			s := maskRecall(t, c.in)
			require.InDelta(t, c.value, s.Value, 1e-12)
			require.InDelta(t, c.exact, s.Parts["exact"], 1e-12)
		})
	}
}

func TestMaskFound(t *testing.T) {
	w, err := Prebuilt().Builder(t.Context(), nil).Make("mask_found", nil)
	require.NoError(t, err)
	for text, c := range map[string]struct {
		turn  trajectory.Turn
		value float64
	}{
		"both":            {call("Karl Gauss: mathematician (1777-1855)"), 1},
		"one":             {call("Karl Ernst Gauss died in 1855"), 0.5},
		"a failed call":   {failed("Karl Gauss 1855"), 0},
		"parts of words":  {call("Karl Gaussian 18551"), 0},
		"an answer alone": {answer("Karl Gauss; 1855"), 0},
	} {
		s, err := w.Score(t.Context(), input(map[string]any{"answers": []any{"Karl Gauss", "1855"}}, c.turn))
		require.NoError(t, err)
		require.Equal(t, c.value, s.Value, text)
	}
	_, err = w.Score(t.Context(), input(nil, answer("a")))
	require.EqualError(t, err, `task "t1": the field "answers" must be a list of masked texts that is not empty`)
}

// Naming many entities never scores more than one part in as many as were named, however they are written.
func TestMaskRecallEnumeration(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		entities := make([]string, 2+r.IntN(60))
		for i := range entities {
			entities[i] = fmt.Sprintf("entity%d", i)
		}
		masks := make([]any, 1+r.IntN(4))
		for i := range masks {
			masks[i] = entities[r.IntN(len(entities))]
		}
		in := map[string]any{"answers": masks}
		for _, between := range []string{"; ", "\n", ", ", " ", " or ", " / ", "; [1] "} {
			all := strings.Join(entities, between)
			lists := []string{all, "[1] " + all}
			for i := range masks { // the list as the fill of each mask
				lists = append(lists, fmt.Sprintf("[%d] %s", i+1, strings.Join(entities, " ")))
			}
			repeated := make([]string, len(masks))
			for i := range repeated {
				repeated[i] = strings.Join(entities, ", ")
			}
			for _, a := range append(lists, strings.Join(repeated, "; ")) {
				most := 1 / float64(len(entities))
				if n := strings.Count(a, ";") + strings.Count(a, "\n") + 1; n >= len(entities) && n <= len(masks) {
					most = 1 // as many fills as masks: one candidate each is a guess, not a list
				}
				require.LessOrEqual(t, maskRecall(t, input(in, answer(a))).Value, most+1e-12, "%v: %q", masks, a)
			}
		}
	}
}

func TestMaskRecallTasks(t *testing.T) {
	w, err := Prebuilt().Builder(t.Context(), nil).Make("mask_recall", nil)
	require.NoError(t, err)
	for _, c := range []struct {
		fields map[string]any
		want   string
	}{
		{nil, `task "t1": the field "answers" must be a list of masked texts that is not empty`},
		{map[string]any{"answers": "Zimbabwe"}, `task "t1": the field "answers" must be a list of masked texts that is not empty`},
		{map[string]any{"answers": []any{}}, `task "t1": the field "answers" must be a list of masked texts that is not empty`},
		{map[string]any{"answers": []any{"a", "--"}}, `task "t1": answers[1] must be a text with a letter or a digit and without a semicolon`},
		{map[string]any{"answers": []any{"a; b"}}, `task "t1": answers[0] must be a text with a letter or a digit and without a semicolon`},
		{map[string]any{"answers": []any{[]any{}}}, `task "t1": answers[0] must be a text with a letter or a digit and without a semicolon`},
	} {
		_, err := w.Score(t.Context(), input(c.fields, answer("a")))
		require.EqualError(t, err, c.want)
	}
	_, err = Prebuilt().Builder(t.Context(), nil).Make("mask_recall", map[string]any{"mask": 1})
	require.ErrorContains(t, err, "rewards: mask_recall: ")
}

func FuzzMaskRecall(f *testing.F) {
	f.Add("[1] a; [2] b", "a", "b")
	f.Add("a;\n;b", "b b", "ß")
	f.Fuzz(func(t *testing.T, text, first, second string) {
		if len(words(first)) == 0 || len(words(second)) == 0 || strings.Contains(first+second, ";") {
			t.Skip("not a masked text")
		}
		s := maskRecall(t, input(map[string]any{"answers": []any{first, second}}, answer(text)))
		require.GreaterOrEqual(t, s.Value, 0.0)
		require.LessOrEqual(t, s.Value, 1.0)
		require.LessOrEqual(t, s.Parts["exact"], s.Value+1e-12)
	})
}
