package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextErrorIsReadAsItStands(t *testing.T) {
	require.Equal(t, "a\n  b", errorText(fmt.Errorf("x: %w", &TextError{Text: "a\n  b"}), nil))
}

func TestErrorText(t *testing.T) {
	for in, want := range map[string]string{
		"open /home/ann/data/x.csv: no such file":           "open x.csv: no such file",
		`File "/usr/lib/python3/json.py", line 3`:           `File "json.py", line 3`,
		"a (/srv/a/b) and '/srv/c/d/': gone":                "a (b) and 'd': gone",
		"file:///home/ann/x":                                "x",
		"see https://example.org/a/b and http://[::1]/a/b":  "see https://example.org/a/b and http://[::1]/a/b",
		"write 1/2 or a/b/c, not 1 /2/3 or x / y / z":       "write 1/2 or a/b/c, not 1 /2/3 or x / y / z",
		"no /workspace/out/x.txt":                           "no /workspace/out/x.txt",
		"/workspaces/secret/x":                              "x",
		"Traceback:\n  line 1\n\tKeyError: 'x'\n":           "Traceback: line 1 KeyError: 'x'",
		"./a/b, ../a/b and ~/a/b are of no host":            "./a/b, ../a/b and ~/a/b are of no host",
		"No such file: '/home/ann/My Documents/a b.txt'":    "No such file: 'a b.txt'",
		`open "/srv/it's here/x" or ` + "`/srv/a b/y`":      `open "x" or ` + "`y`",
		"'/srv/a is wrong, use /srv/b' and '/' and '/tmp'":  "'a is wrong, use b' and '/' and '/tmp'",
		"bad:/home/ann/x;/home/ann/y|/home/ann/z=(/srv/a/b": "bad:x;y|z=(b",
		"b'/srv/a/b' and /données/x/y and /9p/x/y":          "b'b' and y and y",
		"PUT https://h/v1/{city}/now/x and h:80/a/b":        "PUT https://h/v1/{city}/now/x and h:80/a/b",
		"no '/given/by/the model' nor /given/too/x":         "no '/given/by/the model' nor /given/too/x",
	} {
		require.Equal(t, want, errorText(errors.New(in), json.RawMessage(`{"paths": ["/given/by/the model", "/given/too/x"]}`)))
	}
}

func FuzzErrorText(f *testing.F) {
	f.Add("open '/home/ann/My Documents/x' and file:///srv/a/b: gone")
	f.Add("`/a/b' \"/c d/e\" /f/g")
	f.Fuzz(func(t *testing.T, text string) {
		require.LessOrEqual(t, len(errorText(errors.New(text), nil)), len(text))
		if !strings.Contains(text, "ann") {
			require.NotContains(t, errorText(errors.New(text+" /home/ann/x"), nil), "/ann")
		}
	})
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
