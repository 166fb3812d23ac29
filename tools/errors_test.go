package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorText(t *testing.T) {
	for in, want := range map[string]string{
		"open /home/ann/data/x.csv: no such file":          "open x.csv: no such file",
		`File "/usr/lib/python3/json.py", line 3`:          `File "json.py", line 3`,
		"a (/srv/a/b) and '/srv/c/d/': gone":               "a (b) and 'd': gone",
		"file:///home/ann/x":                               "x",
		"see https://example.org/a/b and http://[::1]/a/b": "see https://example.org/a/b and http://[::1]/a/b",
		"write 1/2 or a/b/c, not 1 /2/3 or x / y / z":      "write 1/2 or a/b/c, not 1 /2/3 or x / y / z",
		"no /workspace/out/x.txt":                          "no /workspace/out/x.txt",
		"/workspaces/secret/x":                             "x",
		"Traceback:\n  line 1\n\tKeyError: 'x'\n":          "Traceback: line 1 KeyError: 'x'",
		"./a/b, ../a/b and ~/a/b are of no host":           "./a/b, ../a/b and ~/a/b are of no host",
	} {
		require.Equal(t, want, errorText(errors.New(in)))
	}
}

// The errors of package os carry paths, also ones that no pattern finds.
func TestNoHostPathReachesTheModel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my files")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, run := range map[string]func() error{
		"open":   func() error { _, err := os.Open(filepath.Join(dir, "a b.txt")); return err },
		"rename": func() error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")) },
		"root":   func() error { _, err := os.Open("/nowhere"); return err },
	} {
		r := NewRegistry(Options{})
		require.NoError(t, r.Register(textTool("f", func(context.Context) (string, error) {
			if err := run(); err != nil {
				return "", fmt.Errorf("reading: %w", err)
			}
			return "", nil
		})))
		got := invoke(t, r, "f", "{}")
		require.True(t, got.Failed, name)
		require.NotContains(t, got.Observation, "/", name)
		require.NotContains(t, got.Observation, "my files", name)
		require.Contains(t, got.Observation, "no such file or directory", name)
	}
}
