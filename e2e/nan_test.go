//go:build torch

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
)

// poisoned is reinforce, and NaN in its calls from up to, but without, until.
type poisoned struct {
	calls       *int
	from, until int
}

func (poisoned) Name() string { return "poisoned" }

func (l poisoned) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	factor := -1.0
	if *l.calls++; *l.calls > l.from && *l.calls <= l.until {
		factor = math.NaN()
	}
	return in.Affine(in.Mul(in.Advantage, in.Current), factor, 0), in.Err()
}

func TestALossThatIsNaNStopsTheRunAndKeepsTheCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	var out, errs bytes.Buffer
	calls := 0
	loss := agentfly.WithLoss(algorithms.LossSpec{
		Name: "poisoned", Formula: "-A * current, then NaN", Source: "this test",
		New: func(algorithms.Settings) (algorithms.Loss, error) { return poisoned{&calls, 3, math.MaxInt}, nil },
	})
	status := agentfly.Run(context.Background(), []string{
		"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--set", "algorithm={advantage: grpo, loss: poisoned}",
		"--set", "trainer.steps=6", "--set", "checkpoint.every=2",
	}, strings.NewReader(""), &out, &errs, loss)
	require.Equal(t, 1, status, out.String())
	require.Contains(t, errs.String(), "step 4: ")
	require.Contains(t, errs.String(), "NaN")
	require.Equal(t, []int{1, 2, 3}, stepLines(t, dir))
	last, err := filepath.EvalSymlinks(filepath.Join(dir, "checkpoints", "last"))
	require.NoError(t, err)
	require.Equal(t, "step-2", filepath.Base(last))
}

// A step that is not finite is passed over: the weights of the steps before and after it are trained on, and the metrics
// say which trajectory was to blame.
func TestANonFiniteStepIsSkippedAsTheJobSays(t *testing.T) {
	train := func(until int, args ...string) (status int, dir, printed, errs string) {
		dir = filepath.Join(t.TempDir(), "run")
		var out, e bytes.Buffer
		calls := 0
		loss := agentfly.WithLoss(algorithms.LossSpec{
			Name: "poisoned", Formula: "-A * current, NaN for a while", Source: "this test",
			New: func(algorithms.Settings) (algorithms.Loss, error) { return poisoned{&calls, 3, until}, nil },
		})
		status = agentfly.Run(context.Background(), append([]string{
			"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--set", "algorithm={advantage: grpo, loss: poisoned}",
			"--set", "trainer.on_nonfinite=skip",
		}, args...), strings.NewReader(""), &out, &e, loss)
		return status, dir, out.String(), e.String()
	}
	status, dir, printed, errs := train(5, "--set", "trainer.steps=8")
	require.Zero(t, status, errs)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, stepLines(t, dir))
	require.Equal(t, 2, strings.Count(printed, "\nskipped "))
	require.Regexp(t, `skipped +trainer: step 4: .*trajectory train-3-\d+-\d+.*NaN`, printed)
	var steps []map[string]any
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		steps = append(steps, m)
	}
	for i, m := range steps {
		require.Equal(t, i == 3 || i == 4, m["update/skipped"] == 1.0, i)
		_, said := m["skipped"]
		require.Equal(t, i == 3 || i == 4, said, i)
	}
	versions := []any{1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0}
	for i, m := range steps {
		require.Equal(t, versions[i], m["update/policy_version"], "step %d", i)
	}
	var summary struct {
		Skipped int `json:"skipped"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &summary))
	require.Equal(t, 2, summary.Skipped)

	status, _, _, errs = train(math.MaxInt, "--set", "trainer.steps=30")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "step 14 follows 10 skipped ones and is not finite either")
}
