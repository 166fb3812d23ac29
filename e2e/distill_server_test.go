//go:build torch

package e2e_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A teacher behind vLLM's routes says what the same teacher says in this process.
func TestDistillationFromAServer(t *testing.T) {
	model := filepath.Join(trainJob(t, "examples/tiny_sft.yaml", "--set", "data.eval=", "--set", "eval.every=0", "--set", "sft.epochs=5"), "checkpoints", "last")
	url, stop := startServe(t, model)

	args := []string{"--set", "trainer.steps=2", "--set", "data.eval=", "--set", "eval.every=0"}
	local := metricsOf(t, trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "distill.teacher.path="+model)...), "distill/reverse_kl")
	remote := metricsOf(t, trainJob(t, "examples/tiny_distill.yaml", append(args, "--set", "distill={teacher: {urls: ["+url+"]}}")...), "distill/reverse_kl")
	require.Len(t, remote, 2)
	for i := range local {
		require.InDelta(t, local[i]["distill/reverse_kl"], remote[i]["distill/reverse_kl"], 1e-3)
	}
	require.InEpsilon(t, local[0]["update/loss"], remote[0]["update/loss"], 1e-4)
	require.InEpsilon(t, local[0]["update/grad_norm"], remote[0]["update/grad_norm"], 1e-4)
	stop()
}
