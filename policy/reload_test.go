//go:build torch

package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
)

func TestReload(t *testing.T) {
	p, q := policytest.Make(t, 1), policytest.Make(t, 2)
	dir := t.TempDir()
	good, other, cut := filepath.Join(dir, "good"), filepath.Join(dir, "other"), filepath.Join(dir, "cut")
	require.NoError(t, q.SaveHF(good, modelfile.F32))
	require.NoError(t, p.Reload(good))
	require.Equal(t, policytest.Parameters(t, q), policytest.Parameters(t, p))

	wide := policytest.Tiny
	wide.IntermediateSize *= 2
	w, err := policy.Scratch(wide, "0123456789+=", policytest.Template, 3, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.SaveHF(other, modelfile.F32))
	require.ErrorContains(t, p.Reload(other), "another architecture")
	require.NoError(t, policytest.Make(t, 4).SaveHF(cut, modelfile.F32))
	weights := filepath.Join(cut, "model.safetensors")
	info, err := os.Stat(weights)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(weights, info.Size()-100))
	require.Error(t, p.Reload(cut))
	require.Error(t, p.Reload(filepath.Join(dir, "none")))
	require.Equal(t, policytest.Parameters(t, q), policytest.Parameters(t, p), "what failed changed nothing")
}
