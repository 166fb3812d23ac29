package report

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// rewarded are evaluations with these rewards, every ten steps.
func rewarded(rewards ...float64) (all Evaluations) {
	for i, r := range rewards {
		all = append(all, Evaluation{Name: "step-" + strconv.Itoa(10*i), Step: 10 * i, Reward: r})
	}
	return all
}

func TestEvaluationsThatStopARun(t *testing.T) {
	for _, c := range []struct {
		n       int
		rewards []float64
		want    bool
	}{
		{2, nil, false},
		{2, []float64{0.5}, false},
		{2, []float64{0.5, 0.4}, false},
		{2, []float64{0.5, 0.4, 0.5}, true}, // as good is no better
		{2, []float64{0.5, 0.4, 0.6, 0.5}, false},
		{2, []float64{0.5, 0.4, 0.6, 0.5, 0.6}, true},
		{1, []float64{0.5, 0.6, 0.7}, false},
		{1, []float64{0.5, 0.6, 0.6}, true},
		{0, []float64{0.5, 0.4, 0.3, 0.2}, false},
	} {
		require.Equal(t, c.want, rewarded(c.rewards...).Stalled(1000, c.n), "%v", c)
	}
	all := rewarded(0.5, 0.7, 0.6, 0.1)
	require.Equal(t, "eval.stop_after: 2 evaluations in a row were no better than that after step 10", all.StoppedBy(30, 2))
	require.Empty(t, all.StoppedBy(30, 3))
	all = append(all, Evaluation{Name: "after", Step: 30, Reward: 0.9}, Evaluation{Name: "tool_off", Step: 30, Reward: 1})
	require.True(t, all.Stalled(30, 2), "what comes after the end does not begin it anew")
	require.Equal(t, &Best{"after", 30, 0.9}, all.Best(30))
	require.False(t, all.Stalled(20, 2), "a recovered run knows later evaluations, which say nothing yet")
	require.Equal(t, &Best{"step-10", 10, 0.7}, all.Best(20))
}

func TestTheBestOfLossesAndDivergencesIsTheLeast(t *testing.T) {
	loss := func(v float64) Evaluation { return Evaluation{Loss: &v} }
	require.Equal(t, 1, Evaluations{loss(2), loss(1), loss(1.5)}.leader())
	require.Equal(t, &Best{Score: 1}, Evaluations{loss(2), loss(1), loss(1.5)}.Best(0))
	kl := func(v float64) Evaluation { return Evaluation{ReverseKL: &v, Reward: v} }
	require.Equal(t, 2, Evaluations{kl(2), kl(1), kl(0.5)}.leader())
	require.Equal(t, -1, Evaluations(nil).leader())
	require.Nil(t, Evaluations(nil).Best(0))
}

// A run that ended and went on has an evaluation of each end. The earlier one may be the best.
func TestAnEvaluationTakesThePlaceOfItsNameAndStep(t *testing.T) {
	all := Evaluations{{Name: "before"}, {Name: "step-5", Step: 5}, {Name: "after", Step: 10, Reward: 1}}
	require.True(t, all.Has("before", 10), "it is done once")
	require.True(t, all.Has("after", 10))
	require.False(t, all.Has("after", 20))
	require.True(t, all.Ended("eval-after", 10))
	for _, other := range []string{"eval-before", "eval-step-10", "after", "train"} {
		require.False(t, all.Ended(other, 10), other)
	}
	all.Put(Evaluation{Name: "after", Step: 30, Reward: 0.5})
	all.Put(Evaluation{Name: "step-15", Step: 15})
	all.Put(Evaluation{Name: "after", Step: 20, Reward: 0.25}) // as the store gives it back
	all.Put(Evaluation{Name: "step-15", Step: 15, Reward: 0.75})
	require.Equal(t, Evaluations{
		{Name: "before"},
		{Name: "step-5", Step: 5},
		{Name: "after", Step: 10, Reward: 1},
		{Name: "step-15", Step: 15, Reward: 0.75},
		{Name: "after", Step: 20, Reward: 0.25},
		{Name: "after", Step: 30, Reward: 0.5},
	}, all)
	require.Equal(t, &Best{"after", 10, 1}, all.Best(30))
	require.Equal(t, 0.5, Totals{Evaluations: all}.Summary(30, false).Eval["after"], "the last one")
	require.True(t, all.Stalled(15, 1), "an earlier end counts")
}
