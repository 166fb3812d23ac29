package home_test

import (
	"os"
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

func TestCache(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	require.NoError(t, err)
	t.Setenv("HOME", dir)
	for variable, want := range map[string]string{"": filepath.Join(dir, ".cache"), "/cache": "/cache", "rel": filepath.Join(dir, "rel")} {
		t.Setenv("XDG_CACHE_HOME", variable)
		got, err := home.Cache()
		require.NoError(t, err)
		require.Equal(t, filepath.Join(want, "agentfly"), got)
		got, err = home.Cache("models", "a")
		require.NoError(t, err)
		require.Equal(t, filepath.Join(want, "agentfly", "models", "a"), got)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, err = home.Cache()
	require.EqualError(t, err, "there is no cache folder: $HOME is not defined; set XDG_CACHE_HOME")
}
