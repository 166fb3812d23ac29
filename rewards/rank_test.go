package rewards

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// TestHumanRank works through MLE-Dojo's position score: place p of N is (N − p + 1)/N, p the first place among those it ties with.
func TestHumanRank(t *testing.T) {
	r := made(t, "human_rank", nil)
	board := map[string]any{"leaderboard": []any{0.9, 0.8, 0.8, "0.5"}}
	for score, want := range map[string][2]float64{
		"score: 0.95":                 {1, 1},
		"Score = 0.9":                 {1, 1},
		`{"score": 0.85}`:             {0.75, 2},
		"score: 0.8":                  {0.75, 2},
		"score: 0.6":                  {0.25, 4},
		"score: 0.1":                  {0, 5},
		"score: 0.1, then score: 0.6": {0.25, 4}, // the last of an observation
	} {
		s := scored(t, r, input(board, call(score)))
		require.Equal(t, want[0], s.Value, score)
		require.Equal(t, want[1], s.Parts["place"], score)
	}
	s := scored(t, r, input(board, call("score: 0.6"), call("score: 0.85"), failed("score: 1"), call("nothing")))
	require.Equal(t, Score{0.75, map[string]float64{"score": 0.85, "place": 2}}, s, "the best that succeeded")
	require.Zero(t, scored(t, r, input(board)).Value, "no score")

	beside := call("done")
	beside.Results[0].Info = []byte(`{"auc": 0.85, "n": "x"}`)
	require.Equal(t, 0.75, scored(t, made(t, "human_rank", map[string]any{"info": "auc"}), input(board, beside, call("score: 1"))).Value)
	require.Zero(t, scored(t, made(t, "human_rank", map[string]any{"info": "n"}), input(board, beside)).Value)
	refused(t, "human_rank", map[string]any{"info": "x", "pattern": "(x)"}, "rewards: human_rank: info gives the scores; leave pattern out")

	two := map[string]any{"leaderboard": []any{[]any{1, 2, 3, 4}, []any{5.0, 6.0}}}
	lower := made(t, "human_rank", map[string]any{"lower": true, "pattern": `rmse (\S+)`, "tool": "calculator"})
	require.Equal(t, 0.875, scored(t, lower, input(two, call("rmse 2"), call("rmse 9"))).Value) // (3/4 + 1) / 2: beaten are 2, 3, 4 and 5, 6
	nested := made(t, "human_rank", map[string]any{"of": map[string]any{"name": "f1"}})
	require.Equal(t, 1.0/4, scored(t, nested, input(map[string]any{"answer": "a b c", "leaderboard": []any{1, 0.9, 0.8, 0.5}}, answer("b"))).Value)

	for want, fields := range map[string]map[string]any{
		`task "t1": the field "leaderboard" must be a list of scores that is not empty`: {"leaderboard": []any{}},
		`task "t1": leaderboard[0][1] is no number`:                                     {"leaderboard": []any{1.0, "x"}},
		`task "t1": leaderboard[1] must be a list of scores that is not empty`:          {"leaderboard": []any{[]any{1.0}, []any{}}},
	} {
		_, err := r.Score(t.Context(), input(fields, call("score: 1")))
		require.EqualError(t, err, want)
	}
	refused(t, "human_rank", map[string]any{"pattern": "x"}, "rewards: human_rank: the parameter pattern has 0 groups; it needs one, around the score")
	refused(t, "human_rank", map[string]any{"of": "f1", "tool": "x"}, "rewards: human_rank: of gives the scores; leave pattern, info and tool out")
}

func TestBestDelta(t *testing.T) {
	attempts := input(map[string]any{"base": "0.4"}, call("score: 0.5"), call("score: 0.3"), call("score: 0.7"), call("score: 0.7"), call("score: 0.9"))
	delta := func(params map[string]any) Score { return scored(t, made(t, "best_delta", params), attempts) }
	s := delta(nil) // 0.5 begins; 0.7 and 0.9 improve
	require.InDelta(t, 0.4, s.Value, 1e-15)
	require.Equal(t, map[string]float64{"best": 0.9, "improvements": 2}, s.Parts)
	s = delta(map[string]any{"start": 0})
	require.InDelta(t, 0.9, s.Value, 1e-15)
	require.Equal(t, 3.0, s.Parts["improvements"])
	require.InDelta(t, 0.5, delta(map[string]any{"field": "base"}).Value, 1e-15)
	s = delta(map[string]any{"lower": true})
	require.InDelta(t, 0.2, s.Value, 1e-15)
	require.Equal(t, map[string]float64{"best": 0.3, "improvements": 1}, s.Parts)
	require.Equal(t, Score{0, map[string]float64{"improvements": 0}}, scored(t, made(t, "best_delta", nil), input(nil)))
	require.Equal(t, Score{0, map[string]float64{"best": 3, "improvements": 0}}, scored(t, made(t, "best_delta", map[string]any{"start": 3}), input(nil)))

	// of scores the trajectory after each turn: half of the needed results, then all
	steps := input(map[string]any{"answer": "12", "steps": []any{"10", "12"}}, call("1"), call("10"), call("12"))
	s = scored(t, made(t, "best_delta", map[string]any{"of": "right_call"}), steps)
	require.Equal(t, Score{1, map[string]float64{"best": 1, "improvements": 2}}, s)

	refused(t, "best_delta", map[string]any{"start": 1, "field": "x"}, "rewards: best_delta: field and start both give the score to begin with; leave one out")
	_, err := made(t, "best_delta", map[string]any{"field": "base"}).Score(t.Context(), input(map[string]any{"base": "x"}, call("score: 1")))
	require.EqualError(t, err, `task "t1": the field "base" is no number`)
}

// TestAttemptsAreScoredAsTheyWere: of scores the trajectory after a turn with the tokens that it had then, what was posted for it, and, at its
// end, the environment's own score.
func TestAttemptsAreScoredAsTheyWere(t *testing.T) {
	one, two := &trajectory.Sample{}, &trajectory.Sample{}
	respond := func(s *trajectory.Sample, n int) trajectory.Turn {
		s.AppendObservation(make([]int32, 3))
		turn := answer("936")
		turn.CompletionStart = s.Len()
		require.NoError(t, s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n)))
		turn.CompletionEnd = s.Len()
		s.AppendObservation(make([]int32, 2))
		turn.ObservationEnd = s.Len()
		return turn
	}
	turns := []trajectory.Turn{respond(one, 10), respond(two, 15), respond(one, 80)} // two agents that write in turn
	turns[1].Sample = 1
	in := input(map[string]any{"answer": "936", "leaderboard": []any{1.0}}, turns...)
	in.Trajectory.Samples = []*trajectory.Sample{one, two}
	tokens := func(n int) float64 { return 0.5 + 0.25*(1+math.Cos(math.Pi*float64(n)/200)) }
	for _, c := range []struct {
		of    map[string]any
		lower bool
		want  float64
	}{
		{map[string]any{"name": "cosine_length", "if": "final_answer", "max_tokens": 200}, false, tokens(10)},
		{map[string]any{"name": "cosine_length", "if": "final_answer", "max_tokens": 200}, true, tokens(105)},
		{map[string]any{"name": "length", "budget": 20, "buffer": 40}, false, 0},
		{map[string]any{"name": "tool_cost", "per_1000_tokens": 10}, false, -0.1},
	} {
		s := scored(t, made(t, "human_rank", map[string]any{"of": c.of, "lower": c.lower}), in)
		require.InDelta(t, c.want, s.Parts["score"], 1e-12, c.of)
	}
	s := scored(t, made(t, "best_delta", map[string]any{"of": map[string]any{"name": "tool_cost", "per_1000_tokens": 10}, "lower": true}), in)
	require.InDelta(t, 0.95, s.Value, 1e-12) // −0.1, −0.25, −1.05

	posted := 0.7
	in.Posted = &posted
	require.Equal(t, 0.7, scored(t, made(t, "best_delta", map[string]any{"of": "posted", "start": 0}), in).Value)
	in.Episode = scoredEpisode(0.9)
	s = scored(t, made(t, "best_delta", map[string]any{"of": "environment"}), in)
	require.Equal(t, Score{0.9, map[string]float64{"best": 0.9, "improvements": 1}}, s)
}

// What an answering tool returns is the answer, which the policy wrote: it is no score, no result and no find of a tool, unless its tool is named.
func TestAnAnswerIsNotWhatAToolFound(t *testing.T) {
	answering := func(answer string) Input {
		in := input(map[string]any{"answer": "936", "answers": []any{"oak"}, "leaderboard": []any{0.5}}, trajectory.Turn{FinalAnswer: answer, AnsweredThisTurn: true, Results: []trajectory.ToolResult{
			{Call: trajectory.ToolCall{Name: "answer"}, Observation: answer, Terminal: true},
		}})
		return in
	}
	for name, c := range map[string]struct {
		answer string
		params map[string]any
	}{
		"human_rank": {"score: 1.0", nil},
		"best_delta": {"score: 1.0", map[string]any{"start": 0}},
		"right_call": {"936", nil},
		"mask_found": {"oak", nil},
	} {
		require.Zero(t, scored(t, made(t, name, c.params), answering(c.answer)).Value, name)
	}
	require.Zero(t, scored(t, made(t, "search_r1", map[string]any{"field": "answer"}), answering("936")).Parts["retrieved"])
	require.Equal(t, 1.0, scored(t, made(t, "human_rank", map[string]any{"tool": "answer"}), answering("score: 1.0")).Value)
}
