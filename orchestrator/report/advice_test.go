package report_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/report"
)

// stepsOf are twelve steps with these numbers, and rewards that do not go anywhere.
func stepsOf(with map[string]float64) (out []map[string]float64) {
	for i := range 12 {
		m := map[string]float64{"reward/mean": 0.5 + 0.01*float64(i%2), "groups/sampled": 8, "turns": 10, "tools/calls": 10, "seconds/step": 10, "seconds/wait": 5}
		for k, v := range with {
			m[k] = v
		}
		out = append(out, m)
	}
	return out
}

// Each piece of advice comes with the figure that it is given for, and no figure that is as usual gives any.
func TestAdvice(t *testing.T) {
	require.Empty(t, report.Advice(stepsOf(nil), nil, report.Setup{}))
	require.Empty(t, report.Advice(nil, nil, report.Setup{}))
	for begins, c := range map[string]struct {
		with map[string]float64
		not  []report.Setup // with which the same figure is as it should be, or cannot be changed so
	}{
		"75% of the groups of steps 9-12 were flat":       {map[string]float64{"groups/flat": 6}, []report.Setup{{SFT: true}}},
		"30% of the completions were cut":                 {map[string]float64{"turns/cut": 3}, []report.Setup{{CutParse: true}}},
		"40% of the tool calls failed":                    {map[string]float64{"tools/failed": 4}, []report.Setup{{SFT: true}}},
		"the trainer waited for rollouts 90% of the time": {map[string]float64{"seconds/wait": 9}, []report.Setup{{Overlaps: true}, {NoAsync: true}}},
		"the loss clipped 50% of the tokens":              {map[string]float64{"update/clip_fraction": 0.5}, []report.Setup{{SFT: true}}},
	} {
		got := report.Advice(stepsOf(c.with), nil, report.Setup{Dir: "runs/x"})
		require.Len(t, got, 1, begins)
		require.True(t, strings.HasPrefix(got[0], begins), got[0])
		for _, not := range c.not {
			require.Empty(t, report.Advice(stepsOf(c.with), nil, not), "%s: %+v", begins, not)
		}
	}
	rising := stepsOf(nil)
	for i := range rising {
		rising[i]["reward/mean"] += 0.05 * float64(i)
		rising[i]["sft/loss"] = 3 - 0.1*float64(i)
	}
	require.Equal(t, []string{"the reward was still getting better at the end (+0.153 over the last quarter): go on with --resume --set trainer.steps=24"}, report.Advice(rising, nil, report.Setup{}))
	require.Regexp(t, "^the loss was still getting better .*: go on with --resume --set trainer.steps=24$", report.Advice(rising, nil, report.Setup{SFT: true})[0])
	require.Regexp(t, "^the loss was still getting better .*: go on with --resume --set sft.epochs=80$", report.Advice(rising, nil, report.Setup{SFT: true, Epochs: 40})[0], "they take the place of trainer.steps")
	require.Empty(t, report.Advice(rising[:7], nil, report.Setup{}), "few steps say nothing of where it goes")

	all := report.Evaluations{{Name: "before", Reward: 0.2}, {Name: "step-6", Step: 6, Reward: 0.8}, {Name: "after", Step: 12, Reward: 0.5}}
	got := report.Advice(stepsOf(nil), all, report.Setup{})
	require.Len(t, got, 1)
	require.Contains(t, got[0], "the held-out score was best after step 6 (0.800) and is 0.500 now: take RUN@best")
	require.Empty(t, report.Advice(stepsOf(nil), all[:2], report.Setup{}), "the last one is the best")
}

// Advice on flat groups says of which steps it speaks: one step of three is not the run.
func TestAdviceNamesTheStepsOfFlatGroups(t *testing.T) {
	steps := stepsOf(nil)[:3]
	steps[2]["groups/flat"] = 8
	require.Contains(t, report.Advice(steps, nil, report.Setup{})[0], "100% of the groups of step 3 were flat and taught nothing: ")
}

// A distillation learns by the divergence from its teacher: its reward is reported, and no advice is about it.
func TestAdviceOnADistillation(t *testing.T) {
	var steps []map[string]float64
	for i := range 80 {
		reward := 0.9
		if i >= 40 {
			reward = 0.3
		}
		steps = append(steps, map[string]float64{"reward/mean": reward + 0.001*float64(i%3), "distill/reverse_kl": 4 - 0.04*float64(i) + 0.001*float64(i%3)})
	}
	setup := report.Setup{Dir: "d", Distill: true}
	require.Equal(t, []string{"the reverse KL was still getting better at the end (-0.800 over the last quarter): go on with --resume --set trainer.steps=160"}, report.Advice(steps, nil, setup))
	for i := range steps {
		steps[i]["reward/mean"], steps[i]["distill/reverse_kl"] = 0.01*float64(i), 1+0.001*float64(i%3)
		if i >= 40 {
			steps[i]["distill/reverse_kl"] += 2
		}
	}
	require.Equal(t, []string{"the reverse KL was 1.001 in steps 1-10 and is 3.001 now, and got worse most at step 41: agentfly view d says why under Causes"}, report.Advice(steps, nil, setup))
}

// A step of which no trajectory finished has no reward, and is passed over: it is no step with a reward of 0.
func TestAdviceOnStepsWithoutAReward(t *testing.T) {
	var steps []map[string]float64
	for i := range 80 {
		m := map[string]float64{"trajectories/failed": 8}
		if i < 60 {
			m = map[string]float64{"reward/mean": 0.5 + 0.01*float64(i%2)}
		}
		steps = append(steps, m)
	}
	require.Empty(t, report.Advice(steps, nil, report.Setup{}))
	for i := range 30 {
		steps[i]["reward/mean"] += 0.4
	}
	steps = slices.Insert(steps, 0, map[string]float64{}, map[string]float64{})
	require.Equal(t, []string{"the reward was 0.906 in steps 4-10 and is 0.506 now, and got worse most at step 33: agentfly view d says why under Causes"}, report.Advice(steps, nil, report.Setup{Dir: "d"}))
}

// A reward that was better and fell is told with the step at which it fell, and is not called rising after that; noise is no fall.
func TestAdviceOnAFall(t *testing.T) {
	var steps []map[string]float64
	for i := range 48 {
		v := min(0.7, 0.05*float64(i))
		if i >= 30 {
			v = 0.2 + 0.004*float64(i-30)
		}
		steps = append(steps, map[string]float64{"reward/mean": v + 0.02*float64(i%3-1), "sft/loss": 3 - v})
	}
	got := report.Advice(steps, nil, report.Setup{Dir: "runs/x"})
	require.Len(t, got, 1)
	require.Regexp(t, `^the reward was 0\.700 in steps 15-20 and is 0\.258 now, and got worse most at step 31: agentfly view runs/x says why under Causes$`, got[0])
	require.Contains(t, report.Advice(steps, nil, report.Setup{Dir: "runs/x", SFT: true})[0], "the loss was 2.300 in steps")
	require.Empty(t, report.Advice(steps[:31], nil, report.Setup{}), "of one step it cannot be told")
	for i := range steps {
		steps[i]["reward/mean"] = 0.5 + 0.1*float64(i%5-2)
	}
	require.Empty(t, report.Advice(steps, nil, report.Setup{}), "it goes up and down")
}
