//go:build torch

package agentfly_test

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// poisoned is reinforce until its fourth step, then NaN.
type poisoned struct{ calls *int }

func (poisoned) Name() string { return "poisoned" }

func (l poisoned) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	factor := -1.0
	if *l.calls++; *l.calls > 3 {
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
		New: func(algorithms.Settings) (algorithms.Loss, error) { return poisoned{&calls}, nil },
	})
	status := agentfly.Run(context.Background(), []string{
		"agentfly", "train", "examples/tiny.yaml", "--output", dir, "--set", "algorithm={advantage: grpo, loss: poisoned}",
		"--set", "trainer.steps=6", "--set", "checkpoint.every=2",
	}, strings.NewReader(""), &out, &errs, loss)
	require.Equal(t, 1, status, out.String())
	require.Contains(t, errs.String(), "policy: step 3: ")
	require.Contains(t, errs.String(), "NaN")
	require.Equal(t, []int{0, 1, 2}, stepLines(t, dir))
	last, err := filepath.EvalSymlinks(filepath.Join(dir, "checkpoints", "last"))
	require.NoError(t, err)
	require.Equal(t, "step-2", filepath.Base(last))
}
