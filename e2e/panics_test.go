//go:build torch

package e2e_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/tools"
)

// brittle is an estimator, reward minus the group's mean, that panics in its calls after the first ones. Calls that ask
// about groups of one trajectory do not count.
type brittle struct {
	calls *int
	last  int
}

func (b brittle) Advantages(groups []algorithms.Group) ([][][]float64, error) {
	if len(groups[0]) > 1 {
		*b.calls++
	}
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		mean := 0.0
		for _, r := range group {
			mean += r.Reward / float64(len(group))
		}
		for _, r := range group {
			row := make([]float64, r.Tokens)
			for t := range row {
				row[t] = r.Reward - mean
			}
			out[g] = append(out[g], row)
		}
	}
	if *b.calls > b.last {
		panic("no such column")
	}
	return out, nil
}

// A panic in an estimator that a program brings ends the run with a message that names it, and the run goes on from there
// when it is corrected, to the weights of a run without the fault. A panic when the run goes on is a message too.
func TestARunWhoseEstimatorPanicsIsResumable(t *testing.T) {
	train := func(dir string, last int, args ...string) (status int, out, errs string) {
		var o, e bytes.Buffer
		calls := 0
		own := agentfly.WithEstimator(algorithms.EstimatorSpec{
			Name: "brittle", Formula: "r - mean(r)", Source: "this test",
			New: func(algorithms.Settings) (algorithms.Estimator, error) { return brittle{&calls, last}, nil },
		})
		status = agentfly.Run(context.Background(), append([]string{
			"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--set", "algorithm={advantage: brittle}",
			"--set", "trainer.steps=6", "--set", "checkpoint.every=2",
		}, args...), strings.NewReader(""), &o, &e, own)
		return status, o.String(), e.String()
	}
	whole := filepath.Join(t.TempDir(), "whole")
	status, _, errs := train(whole, 100)
	require.Zero(t, status, errs)
	rewards, weights := curve(t, whole)

	dir := filepath.Join(t.TempDir(), "run")
	status, out, errs := train(dir, 3)
	require.Equal(t, 1, status, out)
	require.Regexp(t, `agentfly: step 4: algorithms: advantage brittle panicked: no such column, at \S+panics_test\.go:\d+\n`, errs)
	require.Contains(t, errs, "the run can go on with --resume")
	require.Equal(t, []int{1, 2, 3}, stepLines(t, dir))

	status, out, errs = train(dir, 0, "--resume")
	require.Equal(t, 1, status, out)
	require.Regexp(t, `step 3: algorithms: advantage brittle panicked: no such column`, errs)

	status, out, errs = train(dir, 100, "--resume")
	require.Zero(t, status, errs)
	require.Contains(t, out, "trained again as recorded")
	requireSameRun(t, dir, rewards, weights)
}

// panicking is a loss that panics.
type panicking struct{}

func (panicking) Name() string { return "panicking" }

func (panicking) PerToken(algorithms.LossInput) (gotorch.Tensor, error) { panic("three rows") }

// A panic of a loss is a message that names it.
func TestARunWhoseLossPanicsEndsWithAMessage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	var out, errs bytes.Buffer
	loss := agentfly.WithLoss(algorithms.LossSpec{
		Name: "panicking", Formula: "-", Source: "this test",
		New: func(algorithms.Settings) (algorithms.Loss, error) { return panicking{}, nil },
	})
	status := agentfly.Run(context.Background(), []string{
		"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--set", "algorithm={advantage: grpo, loss: panicking}", "--set", "trainer.steps=2",
	}, strings.NewReader(""), &out, &errs, loss)
	require.Equal(t, 1, status, out.String())
	require.Regexp(t, `agentfly: step 1: optimizer step 1 of 1: algorithms: loss panicking: its PerToken panicked: three rows, at \S+panics_test\.go:\d+\n`, errs.String())
	require.Contains(t, errs.String(), "the run can go on with --resume")
}

// mute is a format that panics when it is asked for its stop strings.
type mute struct{ agents.Format }

func (mute) Stops() []string { panic("no strings") }

// unmarked is one that panics when it is asked for its marks.
type unmarked struct{ agents.Format }

func (unmarked) Marks() []string { panic("no marks") }

// A panic of a format before the first rollout is an error of the job, at its key.
func TestAFormatThatPanicsBeforeTheFirstRollout(t *testing.T) {
	for name, wrong := range map[string]struct {
		of  func(agents.Format) agents.Format
		say string
	}{
		"mute":     {func(f agents.Format) agents.Format { return mute{f} }, "no strings"},
		"unmarked": {func(f agents.Format) agents.Format { return unmarked{f} }, "no marks"},
	} {
		var out, errs bytes.Buffer
		format := agentfly.WithFormatFactory(name, "wrong on purpose", func(specs []tools.Spec, o agents.FormatOptions) (agents.Format, error) {
			f, err := agents.NewFormat("tags", specs, o)
			return wrong.of(f), err
		})
		status := agentfly.Run(context.Background(), []string{
			"agentfly", "train", "examples/tiny.yaml", "--output", filepath.Join(t.TempDir(), "run"),
			"--set", "agent={kind: custom, format: " + name + ", max_turns: 2, tools: [calculator], instructions: false}",
		}, strings.NewReader(""), &out, &errs, format)
		require.Equal(t, 2, status, errs.String())
		require.Regexp(t, `agent\.format: the format `+name+` panicked: `+wrong.say+`, at \S+panics_test\.go:\d+`, errs.String())
	}
}
