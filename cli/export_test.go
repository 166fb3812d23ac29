package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
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
		"takes a run, or several, and a format":                     {"export", "csv"},
		`there is no format "tensorbord"`:                           {"export", lines, "tensorbord"},
		"the format stands last: agentfly export " + lines + " csv": {"export", "csv", lines},
		"no-such-run":                    {"export", filepath.Join(dir, "no-such-run"), "csv"},
		"are the same run; name it once": {"export", "--out", dir, lines, dir + "/./metrics.jsonl", "csv"},
	} {
		_, _, err := command(t, args...)
		require.ErrorContains(t, err, says)
	}
}

// A run that cannot be written keeps none behind it back, and takes no word of what is missing of those before it.
func TestExportTellsOfEveryRun(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	var runs []string
	for i, name := range []string{"one", "two", "three"} {
		runs = append(runs, filepath.Join(dir, name))
		overviewtest.Run{Steps: overviewtest.Steps(0.1 * float64(i))}.Write(t, runs[i])
	}
	require.NoError(t, os.MkdirAll(filepath.Join(out, "one", "one.csv"), 0o700)) // a folder is in the way
	require.NoError(t, os.MkdirAll(filepath.Join(out, "two", "two.csv"), 0o700))
	text, _, err := command(t, append(append([]string{"export"}, runs...), "csv", "--out", out)...)
	require.ErrorContains(t, err, filepath.Join("one", "one.csv"))
	require.ErrorContains(t, err, filepath.Join("two", "two.csv"))
	require.Equal(t, "wrote     "+filepath.Join(out, "three", "three.csv")+"  5 metrics\n", text)
}

// Runs of one name cannot lie in one folder, at once or one after the other.
func TestExportOfRunsOfOneName(t *testing.T) {
	dir := t.TempDir()
	one, other, out := filepath.Join(dir, "1", "calc"), filepath.Join(dir, "2", "calc"), filepath.Join(dir, "out")
	overviewtest.Run{Steps: overviewtest.Steps(0.1)}.Write(t, one)
	overviewtest.Run{Steps: overviewtest.Steps(0.2)}.Write(t, other)
	_, _, err := command(t, "export", one, other, "csv", "--out", out)
	require.EqualError(t, err, one+" and "+other+" have the same name, and "+filepath.Join(out, "calc")+" can hold one of them; give each another --out")
	for _, args := range [][]string{{"--out", out}, nil} {
		_, _, err = command(t, append([]string{"export", one, one + "/", "csv"}, args...)...)
		require.EqualError(t, err, one+" and "+one+"/ are the same run; name it once")
	}
	require.NoDirExists(t, out)
}
