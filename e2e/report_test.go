package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A run that is killed and goes on reports to its files what `agentfly export` writes of it, each step once, and ends well though a server that it
// reports to is not there, of which it says how it gets the rest.
func TestReportsOfARunThatIsKilled(t *testing.T) {
	needTorch(t)
	k := newKilled(t)
	k.args = []string{"--set", "report=[tensorboard, csv, jsonl, parquet, {mlflow: 'http://127.0.0.1:1'}]"}
	start := time.Now()
	k.finish(filepath.Join(t.TempDir(), "whole"), 0)
	k.longest = time.Since(start)
	for most := kills(t, 2); k.kills < most; {
		dir, exported := filepath.Join(t.TempDir(), "run"), t.TempDir()
		k.finish(dir, most)
		for _, format := range []string{"tensorboard", "csv", "jsonl"} {
			status, _, errs := command("", "export", dir, "--out", exported, format)
			require.Zero(t, status, errs)
			files, err := filepath.Glob(filepath.Join(dir, format, "*"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			reported, err := os.ReadFile(files[0])
			require.NoError(t, err)
			want, err := os.ReadFile(filepath.Join(exported, filepath.Base(dir), filepath.Base(files[0])))
			require.NoError(t, err)
			require.Equal(t, want, reported, format)
		}
		files, err := filepath.Glob(filepath.Join(dir, "parquet", "*"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
		require.NoError(t, err)
		var summary struct{ Reports []string }
		require.NoError(t, json.Unmarshal(text, &summary))
		require.Len(t, summary.Reports, 1)
		require.Contains(t, summary.Reports[0], "connection refused; catch up with: agentfly export --to http://127.0.0.1:1 "+dir+" mlflow")
	}
}
