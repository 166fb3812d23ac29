package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExport(t *testing.T) {
	dir := t.TempDir()
	lines := filepath.Join(dir, "metrics.jsonl")
	require.NoError(t, os.WriteFile(lines, []byte(`{"step":1,"reward/mean":0.5}`+"\n"+`{"step":2,"reward/mean":0.75}`+"\n"), 0o600))
	_, _, err := command(t, "export", lines, "tensorboard")
	require.ErrorContains(t, err, "is a file; name the folder to write into with --out")
	for range 2 { // twice gives one file
		out, _, err := command(t, "export", "--out", filepath.Join(dir, "out"), lines, "csv")
		require.NoError(t, err)
		require.Contains(t, out, "wrote     ")
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", "metrics", "metrics.csv"))
	require.NoError(t, err)
	require.Equal(t, "run,metric,step,value\nmetrics,reward/mean,1,0.5\nmetrics,reward/mean,2,0.75\n", string(text))
	left, err := os.ReadDir(filepath.Join(dir, "out", "metrics"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	for says, args := range map[string][]string{
		"takes a run, or several, and a format": {"export", "csv"},
		`there is no format "tensorbord"`:       {"export", lines, "tensorbord"},
		"no-such-run":                           {"export", filepath.Join(dir, "no-such-run"), "csv"},
		"have the same name":                    {"export", "--out", dir, lines, lines, "csv"},
	} {
		_, _, err := command(t, args...)
		require.ErrorContains(t, err, says)
	}
}
