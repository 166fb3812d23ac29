package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func printed(s Summary, bestKept string) string {
	var out []string
	s.Print(func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }, "run", "job.yaml", "run/checkpoints/last", bestKept)
	return strings.Join(out, "\n")
}

func TestTheSummaryOfARun(t *testing.T) {
	var sum Totals
	for i, reward := range []float64{0, 0.1, 0.2, 0.9, 0.9, 0.6} {
		sum.Add(Step{
			Rollouts: &Rollouts{
				Reward: Reward{Mean: reward}, Trajectories: Trajectories{Failed: 1, Errors: map[string]int{"engine": 1}}, Turns: &Turns{TokensSampled: 100},
				Sampling: Sampling{Seconds: 2}, Policy: Policy{MismatchMax: float64(i) / 1e5},
			},
			Tokens: Tokens{Unpacked: 300}, Seconds: Seconds{Train: 3},
		}, 4)
	}
	sum.Seconds = 61
	sum.Evaluations = Evaluations{{Name: "before", Reward: 0.25}, {Name: "after", Step: 6, Reward: 0.75}, {Name: "tool_off", Step: 6, Accuracy: 0.5, Reward: 1}}
	s := sum.Summary(6, false)
	s.Job = "tiny"
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.JSONEq(t, `{"job": "tiny", "steps": 6, "seconds": 61, "reward": {"first": 0.10000000000000002, "last": 0.7999999999999999}, "eval": {"before": 0.25, "after": 0.75, "tool_off": 0.5},
		"tokens_per_second": {"sample": 50, "train": 100}, "trajectories": {"finished": 24, "failed": 6}, "mismatch_max": 0.00005, "errors": {"engine": 6},
		"best": {"name": "after", "step": 6, "score": 0.75}}`, string(text))
	require.Equal(t, `
tiny: 6 steps in 1m1s; reward 0.100 -> 0.800
held-out tasks: reward 0.250 before, 0.750 after
with the tools switched off the trained model answers 50% right
best: 0.750 after step 6 (evaluation after), kept in run/checkpoints/best
sampled 50 tok/s, trained 100 tok/s; 24 trajectories finished, 6 failed; engine and trainer logprobs at most 5.0e-05 apart

checkpoint     run/checkpoints/last (Hugging Face format)
metrics        run/metrics.jsonl
look next      agentfly inspect trajectory --run run --view    the tokens of a trajectory, coloured by mask and logprob
               agentfly eval job.yaml --model run/checkpoints/last`, printed(s, "run/checkpoints/best"))
	require.NotContains(t, printed(s, ""), "best:")
}

func TestTheSummaryOfSupervisedFineTuning(t *testing.T) {
	one, two := 1.0, 2.0
	sum := Totals{Seconds: 5, Losses: []float64{3, 1}, Evaluations: Evaluations{{Name: "before", Loss: &two}, {Name: "step-1", Step: 1, Loss: &two}, {Name: "after", Step: 2, Loss: &one}}}
	s := sum.Summary(2, true)
	s.Job, s.Stopped = "x", "enough"
	require.Empty(t, s.Reward)
	require.Equal(t, map[string]float64{"first": 2, "last": 2, "eval_before": 2, "eval_after": 1}, s.Loss)
	require.Equal(t, `
x: 2 steps in 5s; loss 2.0000 -> 2.0000
held-out conversations: loss 2.0000 before, 1.0000 after
stopped early: enough
checkpoint     run/checkpoints/last (Hugging Face format)
look next      agentfly inspect trajectory --run run --view    what was learned, coloured by mask`, printed(s, ""))
}
