package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func printed(s Summary, bestKept string) string { return printedOf(s, bestKept, true) }

func printedOf(s Summary, bestKept string, talks bool) string {
	var out []string
	s.Print(func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }, "run", "job.yaml", "run/checkpoints/last", bestKept, talks)
	return strings.Join(out, "\n")
}

// Where nobody can chat with the policy, the summary offers to sample a trajectory instead.
func TestTheSummaryOffersWhatTheJobCanDo(t *testing.T) {
	out := printedOf(Summary{Job: "walk", Eval: map[string]float64{}}, "", false)
	require.NotContains(t, out, "chat")
	require.True(t, strings.HasSuffix(out, `
next           agentfly inspect trajectory --run run --view
               agentfly try job.yaml --model run
               agentfly serve run`), out)
}

func TestTheSummaryOfARun(t *testing.T) {
	var sum Totals
	for i, reward := range []float64{0, 0.1, 0.2, 0.9, 0.9, 0.6} {
		sum.Add(Step{
			Rollouts: &Rollouts{
				Reward: Reward{Mean: &reward}, Trajectories: Trajectories{Failed: 1, Errors: map[string]int{"engine": 1}}, Turns: &Turns{TokensSampled: 100},
				Sampling: Sampling{Seconds: 2, TokensPerSecond: 50}, Policy: Policy{MismatchMax: float64(i) / 1e5},
			},
			Tokens: Tokens{Unpacked: 300}, Seconds: Seconds{Train: 3},
		}, 4)
	}
	sum.Seconds = 61
	sum.Evaluations = Evaluations{{Name: "before", Reward: 0.25, Seconds: 4}, {Name: "after", Step: 6, Reward: 0.75}, {Name: "tool_off", Step: 6, Accuracy: 0.5, Reward: 1}}
	s := sum.Summary(6, false)
	s.Job = "tiny"
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.JSONEq(t, `{"job": "tiny", "steps": 6, "seconds": 61, "reward": {"first_step": 0, "last_step": 0.6, "first": 0.10000000000000002, "last": 0.7999999999999999, "window": 3}, "time": {"sample": 12, "train": 18, "evaluate": 4, "rest": 27}, "eval": {"before": 0.25, "after": 0.75, "tool_off": 0.5},
		"tokens_per_second": {"sample": 50, "train": 100}, "trajectories": {"finished": 24, "failed": 6}, "mismatch_max": 0.00005, "errors": {"engine": 6},
		"best": {"name": "after", "step": 6, "score": 0.75}}`, string(text))
	require.Equal(t, `
tiny: 6 steps in 1m1s
reward         0.000 -> 0.600   step 1 and step 6
               0.100 -> 0.800   mean of steps 1-3 and 4-6
held-out tasks 0.250 before, 0.750 after
without tools  50% right
best           0.750 after step 6 (evaluation after): run/checkpoints/best
worse          6 of 30 trajectories failed (errors: engine 6)
time           sampling 12.0 s, training 18.0 s, evaluation 4.0 s, the rest 27.0 s
speed          sampled 50 tok/s, trained 100 tok/s
trajectories   24 finished, 6 failed; engine and trainer logprobs at most 5.0e-05 apart
checkpoint     run/checkpoints/last (Hugging Face format)

next           agentfly inspect trajectory --run run --view
               agentfly eval job.yaml --model run
               agentfly chat run
               agentfly serve run`, printed(s, "run/checkpoints/best"))
	require.NotContains(t, printed(s, ""), "best ")
}

// Logprobs of older policy versions are far from the trainer's, whatever the engine computes.
func TestTheSummaryOfStaleTokens(t *testing.T) {
	var sum Totals
	for _, versions := range []int{0, 2, 1} {
		sum.Add(Step{Rollouts: &Rollouts{Turns: &Turns{}, Policy: Policy{MismatchMax: 1.75, StalenessMax: versions}}}, 4)
	}
	require.Contains(t, printed(sum.Summary(3, false), ""), "engine and trainer logprobs at most 1.8e+00 apart (tokens are up to 2 versions old)\n")
}

func TestTheSummaryOfSupervisedFineTuning(t *testing.T) {
	one, two := 1.0, 2.0
	sum := Totals{Seconds: 5, Losses: []float64{3, 1}, Evaluations: Evaluations{{Name: "before", Loss: &two}, {Name: "step-1", Step: 1, Loss: &two}, {Name: "after", Step: 2, Loss: &one}}}
	s := sum.Summary(2, true)
	s.Job, s.Stopped = "x", "enough"
	require.Empty(t, s.Reward)
	require.Equal(t, map[string]float64{"first_step": 3, "last_step": 1, "first": 3, "last": 1, "window": 1, "eval_before": 2, "eval_after": 1}, s.Loss)
	require.Equal(t, `
x: 2 steps in 5s
stopped early  enough
loss           3.0000 -> 1.0000   step 1 and step 2
held-out loss  2.0000 before, 1.0000 after
time           the rest 5.0 s
checkpoint     run/checkpoints/last (Hugging Face format)

next           agentfly inspect trajectory --run run --view
               agentfly chat run
               agentfly serve run`, printed(s, ""))
}

// First and last steps stand beside windows that have no step in common: three steps that rise are not summed up as if nothing had happened.
func TestTheWindowsOfASummaryDoNotOverlap(t *testing.T) {
	for _, c := range []struct {
		rewards []float64
		steps   int      // of the run; 0: all have a reward
		want    []string // the lines of the reward
	}{
		{nil, 0, nil},
		{nil, 2, nil},
		{[]float64{0.5}, 0, []string{"reward         0.500"}},
		{[]float64{0.1, 0.2}, 0, []string{"reward         0.100 -> 0.200   step 1 and step 2"}},
		{[]float64{0.020, 0.061, 0.103}, 0, []string{"reward         0.020 -> 0.103   step 1 and step 3"}},
		{[]float64{0, 1, 2, 3, 4}, 7, []string{"reward         0.000 -> 4.000   step 1 and step 5 of those that have one", "               0.500 -> 3.500   mean of steps 1-2 and 4-5 of those that have one"}},
		{[]float64{0, 1, 2, 3, 4}, 0, []string{"reward         0.000 -> 4.000   step 1 and step 5", "               0.500 -> 3.500   mean of steps 1-2 and 4-5"}},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 0, []string{"reward         0.000 -> 7.000   step 1 and step 8", "               1.000 -> 6.000   mean of steps 1-3 and 6-8"}},
	} {
		s := Totals{Rewards: c.rewards}.Summary(max(c.steps, len(c.rewards)), false)
		var got []string
		for _, line := range strings.Split(printed(s, ""), "\n") {
			if strings.HasPrefix(line, "reward") || strings.Contains(line, "mean of") {
				got = append(got, line)
			}
		}
		require.Equal(t, c.want, got)
	}
}

// What got worse stands in the summary, and nothing else does.
func TestTheSummarySaysWhatGotWorse(t *testing.T) {
	one, two := 1.0, 2.0
	worse := func(s Summary) []string { return s.worse() }
	require.Empty(t, worse(Totals{Rewards: []float64{0.5, 0.5}}.Summary(2, false)))
	require.Equal(t, []string{"the reward fell from 0.900 to 0.200", "the held-out tasks fell from 0.500 to 0.250", "1 of 4 trajectories failed (errors: tool 3, reward 1)", "2 steps were skipped, because a number was not finite"},
		worse(Totals{
			Rewards: []float64{0.9, 0.2}, Finished: 3, Failed: 1, Skipped: 2, Errors: map[string]int{"reward": 1, "tool": 3},
			Evaluations: Evaluations{{Name: "before", Reward: 0.5}, {Name: "after", Step: 2, Reward: 0.25}},
		}.Summary(2, false)))
	require.Equal(t, []string{"the loss rose from 1.0000 to 3.0000", "the held-out loss rose from 1.0000 to 2.0000"},
		worse(Totals{Losses: []float64{1, 3}, Evaluations: Evaluations{{Name: "before", Loss: &one}, {Name: "after", Step: 2, Loss: &two}}}.Summary(2, true)))
	nearly, alike := 1.00001, 1.00002
	require.Empty(t, worse(Totals{Rewards: []float64{-0.1466, -0.1468}, Evaluations: Evaluations{{Name: "before", Reward: 0.0001}, {Name: "after", Step: 2, Reward: -0.0001}}}.Summary(2, false)), "two that print alike")
	require.Empty(t, worse(Totals{Losses: []float64{nearly, alike}, Evaluations: Evaluations{{Name: "before", Loss: &nearly}, {Name: "after", Step: 2, Loss: &alike}}}.Summary(2, true)))
	distilled := Totals{Rewards: []float64{0.9, 0.2}, Evaluations: Evaluations{{Name: "before", Reward: 0.5}, {Name: "after", Step: 2, Reward: 0.25}}}.Summary(2, false)
	distilled.Distill = true
	require.Empty(t, worse(distilled), "nothing learns from its rewards")
	s := Totals{Rewards: []float64{0, 1, 1}, Evaluations: Evaluations{{Name: "step-1", Step: 1, Reward: 0.75}, {Name: "after", Step: 3, Reward: 0.5}}}.Summary(3, false)
	require.Contains(t, printed(s, ""), "best           0.750 after step 1 (evaluation step-1): not kept: checkpoint.best was off")
	s.Time = map[string]float64{"sample": 10, "train": 9}
	require.Contains(t, printed(s, ""), "time           sampling 10.0 s, training 9.0 s (side by side)\n")
}
