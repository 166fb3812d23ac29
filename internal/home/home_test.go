package home_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/home"
)

func TestExpand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for path, want := range map[string]string{
		"~": dir, "~/": dir, "~/a/b": filepath.Join(dir, "a", "b"),
		"": "", "./~/a": "./~/a", "~a": "~a", "~a/b": "~a/b", "a/~": "a/~", "/~": "/~",
	} {
		require.Equal(t, want, home.Expand(path), path)
	}
	t.Setenv("HOME", "")
	require.Equal(t, "~/a", home.Expand("~/a"), "nobody knows where it is")
}
