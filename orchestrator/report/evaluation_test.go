package report

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// Chen et al. (arXiv 2107.03374, section 2.1): 1 - C(n-c, k)/C(n, k).
func TestPassAtK(t *testing.T) {
	for _, c := range []struct {
		n, c, k int
		want    float64
	}{
		{5, 2, 1, 0.4},       // 2/5
		{5, 2, 2, 0.7},       // 1 - 3/10
		{5, 2, 3, 0.9},       // 1 - 1/10
		{5, 2, 4, 1},         // three cannot all fail to be
		{4, 0, 4, 0},         //
		{4, 4, 1, 1},         //
		{1, 1, 1, 1},         //
		{200, 1, 100, 0.5},   // 1 - C(199,100)/C(200,100) = 1 - 100/200
		{10, 3, 5, 11. / 12}, // 1 - C(7,5)/C(10,5) = 1 - 21/252
	} {
		require.InDelta(t, c.want, passAt(c.n, c.c, c.k), 1e-12, "%d of %d, k %d", c.c, c.n, c.k)
	}
	for n := 1; n <= 40; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				none := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(n-c), int64(k)), new(big.Int).Binomial(int64(n), int64(k)))
				want, _ := new(big.Rat).Sub(big.NewRat(1, 1), none).Float64()
				require.InDelta(t, want, passAt(n, c, k), 1e-12, "%d of %d, k %d", c, n, k)
			}
		}
	}
	require.False(t, math.IsNaN(passAt(100000, 1, 100000)))
}

// The mean of the estimate over all outcomes is the probability itself: k independent trajectories, each right with p.
func TestPassAtKIsUnbiased(t *testing.T) {
	const n, k, p = 6, 3, 0.3
	mean := 0.0
	for c := 0; c <= n; c++ {
		ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(n, int64(c))).Float64()
		mean += ways * math.Pow(p, float64(c)) * math.Pow(1-p, float64(n-c)) * passAt(n, c, k)
	}
	require.InDelta(t, 1-math.Pow(1-p, k), mean, 1e-12)
}

func TestAnEvaluationCountsFailedCalls(t *testing.T) {
	e := Evaluation{Name: "before", Tasks: 2, Parts: map[string]float64{}, Errors: map[string]int{}}
	e.count([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{{Turns: []trajectory.Turn{
		{Results: []trajectory.ToolResult{{Observation: "2"}, {Observation: "Error: slow", Failed: true, Cause: trajectory.CauseBroken}}},
		{Results: []trajectory.ToolResult{{Observation: "Error: no such tool", Failed: true}}},
		{FinishReason: trajectory.FinishLength},
	}}}}})
	require.Equal(t, 1, e.Cut)
	require.Equal(t, 2, e.FailedCalls)
	require.Equal(t, map[string]int{"tool": 1}, e.Errors)
	require.Equal(t, "before       reward 0.000, right answers 0% of 2 tasks, 3 tool calls (2 failed), 0 s", e.String())
}

// Scores are means over tasks, and the table has a line for each value of a field.
func TestTheScoresOfAnEvaluation(t *testing.T) {
	group := func(source any, rewards ...float64) trajectory.Group {
		g := trajectory.Group{Task: trajectory.Task{Fields: map[string]any{"source": source, "answer": "x"}}}
		for _, r := range rewards {
			tr := &trajectory.Trajectory{Reward: r, RewardParts: map[string]float64{"part": 2 * r}}
			if r < 0 {
				tr.Reward, tr.Err, tr.ErrOrigin = 0, "late", "deadline"
			}
			g.Trajectories = append(g.Trajectories, tr)
		}
		return g
	}
	success := 0.5
	groups := []trajectory.Group{group("web", 1, 0), group("book", 0.5, -1), group(nil, 0.25, 0.25)}
	e := Evaluation{Name: "after", Samples: 2}
	e.Score(groups, Scoring{K: []int{1, 2}, Success: &success, By: "source"})
	require.Equal(t, []string{"failed 1/6  deadline: late"}, e.Failures())
	e.failures = nil
	// book's one that finished is a success, and its one sample says nothing of pass@2.
	require.Equal(t, Evaluation{
		Name: "after", Samples: 2, Tasks: 3, Reward: (0.5 + 0.5 + 0.25) / 3, Failed: 1, Pass: map[string]float64{"1": 0.5, "2": 0.5}, Parts: map[string]float64{"part": 2 * (0.5 + 0.5 + 0.25) / 3},
		Errors: map[string]int{"deadline": 1}, By: "source", Sources: map[string]Score{
			"web":   {Tasks: 1, Reward: new(0.5), Accuracy: new(0.0), Pass: map[string]float64{"1": 0.5, "2": 1}},
			"book":  {Tasks: 1, Reward: new(0.5), Accuracy: new(0.0), Pass: map[string]float64{"1": 1}, Failed: 1},
			noValue: {Tasks: 1, Reward: new(0.25), Accuracy: new(0.0), Pass: map[string]float64{"1": 0, "2": 0}},
		},
	}, e)
	require.Equal(t, []string{
		"evaluation   after        reward 0.417, right answers 0% of 3 tasks, 0 tool calls (0 failed), 0 s",
		"             source  tasks  reward  right  pass@1  pass@2  failed",
		"             (none)      1   0.250   0.0%   0.000   0.000       0",
		"             book        1   0.500   0.0%   1.000       -       1",
		"             web         1   0.500   0.0%   0.500   1.000       0",
		"             all         3   0.417   0.0%   0.500   0.500       1",
	}, e.Lines())

	require.Equal(t, []string{"数学   1", "web   20"}, aligned([][]string{{"数学", "1"}, {"web", "20"}}), "a character of two columns")

	e = Evaluation{Name: "x"}
	e.Score(groups[:1], Scoring{By: "source"})
	require.Empty(t, e.By, "one value is no table")
	require.Nil(t, e.Pass)
	require.Len(t, e.Lines(), 1)
}

// What an evaluation measured has its own name: goals of an environment, right answers, and nothing but the reward where no task has an answer.
func TestWhatAnEvaluationCallsASuccess(t *testing.T) {
	acted := &trajectory.Trajectory{Reward: 1, Turns: []trajectory.Turn{{Results: []trajectory.ToolResult{{Outcome: &trajectory.Outcome{Success: true}}}}}}
	for want, g := range map[string]trajectory.Group{
		"after        reward 1.000, solved 100% of 1 tasks, 1 actions (0 failed), 0 s":         {Trajectories: []*trajectory.Trajectory{acted}},
		"after        reward 1.000, right answers 0% of 1 tasks, 0 tool calls (0 failed), 0 s": {Task: trajectory.Task{Fields: map[string]any{"answer": "x"}}, Trajectories: []*trajectory.Trajectory{{Reward: 1}}},
		"after        reward 1.000 of 1 tasks, 0 tool calls (0 failed), 0 s":                   {Trajectories: []*trajectory.Trajectory{{Reward: 1}}},
	} {
		e := Evaluation{Name: "after"}
		e.Score([]trajectory.Group{g}, Scoring{Acts: g.Trajectories[0].Turns != nil})
		require.Equal(t, want, e.String())
	}
}

// Where the job has no rewards an evaluation has none, also when it is read back; the right answers it has all the same. One of an older program, which
// recorded 0, is read as it is.
func TestAnEvaluationWithoutRewardsHasNone(t *testing.T) {
	right := &trajectory.Trajectory{Unscored: true, Turns: []trajectory.Turn{{FinalAnswer: "x", AnsweredThisTurn: true}}}
	wrong := &trajectory.Trajectory{Unscored: true}
	var e, again Evaluation
	e.Score([]trajectory.Group{{Task: trajectory.Task{Fields: map[string]any{"answer": "x"}}, Trajectories: []*trajectory.Trajectory{right, wrong}}}, Scoring{K: []int{2}})
	require.Equal(t, []float64{0.5, 1}, []float64{e.Accuracy, e.Pass["2"]})
	require.Equal(t, []string{
		"evaluation                reward -, right answers 50% of 1 tasks, 0 tool calls (0 failed), 0 s",
		"             tasks of  tasks  reward  right  pass@2  failed",
		"             all           1       -  50.0%   1.000       0",
	}, e.Lines())
	text, err := json.Marshal(e)
	require.NoError(t, err)
	require.NotContains(t, string(text), `"reward"`)
	require.NoError(t, json.Unmarshal(text, &again))
	e.failures, e.Errors = nil, nil // which are not recorded where there are none
	require.Equal(t, e, again)
	var older Evaluation
	require.NoError(t, json.Unmarshal([]byte(`{"name": "before", "reward": 0, "reverse_kl": 2}`), &older))
	require.Equal(t, "before       reverse KL 2.0000 nats a token, reward 0.000 of 0 tasks, 0 s", older.String())
}

// A failure of what carries the run is no reward of 0 and no wrong answer: it leaves the means, and is counted.
func TestFailuresLeaveTheMeansOfAnEvaluation(t *testing.T) {
	answered := func(reward float64, answer string) *trajectory.Trajectory {
		return &trajectory.Trajectory{Reward: reward, RewardParts: map[string]float64{"part": reward}, Turns: []trajectory.Turn{{FinalAnswer: answer, AnsweredThisTurn: true}}}
	}
	failed := func(answer string) *trajectory.Trajectory { // it had gone some way, and was paid
		tr := answered(0.75, answer)
		tr.Fail("environment", "the process is gone")
		return tr
	}
	group := func(source string, all ...*trajectory.Trajectory) trajectory.Group {
		return trajectory.Group{Task: trajectory.Task{Fields: map[string]any{"answer": "x", "source": source}}, Trajectories: all}
	}
	whole := []trajectory.Group{group("a", answered(1, "x"), answered(0.5, "y")), group("a", answered(0.25, "y"), answered(0.25, "x"))}
	broken := []trajectory.Group{
		group("a", answered(1, "x"), failed("x"), answered(0.5, "y")), group("a", answered(0.25, "y"), answered(0.25, "x"), failed("y")),
		group("b", failed("x"), failed("x"), failed("x")),
	}
	var want, got Evaluation
	want.Score(whole, Scoring{K: []int{1, 2}})
	got.Samples = 3
	got.Score(broken, Scoring{K: []int{1, 2, 3}, By: "source"})
	require.Equal(t, []float64{want.Reward, want.Accuracy}, []float64{got.Reward, got.Accuracy})
	require.Equal(t, want.Parts, got.Parts)
	require.Equal(t, want.Pass, got.Pass, "no task has the three that pass@3 is of")
	require.Equal(t, 5, got.Failed)
	require.Equal(t, map[string]int{"environment": 5}, got.Errors)
	text, err := json.Marshal(got.Sources["b"])
	require.NoError(t, err)
	require.JSONEq(t, `{"tasks": 1, "failed": 3}`, string(text), "none of its trajectories says anything of the policy")
	require.Contains(t, strings.Join(got.Lines(), "\n"), "b           1       -      -       -       -       3\n")
}
