package corpus_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/stretchr/testify/require"
)

// writeTwo is a build.
func writeTwo(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("first"), 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "sub", "b"), []byte("second"), 0o600)
}

func TestFolderIsBuiltOnce(t *testing.T) {
	cache, builds := t.TempDir(), 0
	get := func(key string) string {
		dir, err := corpus.Folder(t.Context(), cache, key, func(text string) { t.Error(text) }, func(dir string) error { builds++; return writeTwo(dir) })
		require.NoError(t, err)
		return dir
	}
	dir := get("k")
	require.Equal(t, filepath.Join(cache, "k"), dir)
	require.Equal(t, dir, get("k"))
	require.Equal(t, 1, builds)
	get("l")
	require.Equal(t, 2, builds)
	require.NoDirExists(t, dir+".tmp")
}

func TestDamagedFolderIsBuiltAgain(t *testing.T) {
	write := func(dir, name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	for _, c := range []struct {
		name   string
		damage func(dir string) error
		want   string
	}{
		{"a flipped bit", func(d string) error { return write(d, "a", "girst") }, "the checksum of a is wrong"},
		{"a cut file", func(d string) error { return os.Truncate(filepath.Join(d, "sub", "b"), 3) }, "sub/b has 3 bytes, not 6"},
		{"a missing file", func(d string) error { return os.Remove(filepath.Join(d, "sub", "b")) }, "sub/b is missing"},
		{"a folder for a file", func(d string) error {
			return errors.Join(os.Remove(filepath.Join(d, "a")), os.Mkdir(filepath.Join(d, "a"), 0o700))
		}, "a: is a directory"},
		{"no manifest", func(d string) error { return os.Remove(filepath.Join(d, "manifest.json")) }, "no manifest.json"},
		{"a broken manifest", func(d string) error { return write(d, "manifest.json", "{") }, "manifest.json cannot be read"},
		{"an empty manifest", func(d string) error { return write(d, "manifest.json", "{}") }, "manifest.json cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := t.TempDir()
			dir, err := corpus.Folder(t.Context(), cache, "k", nil, writeTwo)
			require.NoError(t, err)
			require.NoError(t, c.damage(dir))
			var warnings []string
			_, err = corpus.Folder(t.Context(), cache, "k", func(text string) { warnings = append(warnings, text) }, writeTwo)
			require.NoError(t, err)
			require.Equal(t, []string{"corpus: the index in " + dir + " is damaged (" + c.want + "); it is built again"}, warnings)
			_, err = corpus.Folder(t.Context(), cache, "k", func(text string) { t.Error(text) }, func(string) error { return errors.New("built a third time") })
			require.NoError(t, err)
		})
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	cache := t.TempDir()
	_, err := corpus.Folder(t.Context(), cache, "k", nil, func(dir string) error { return errors.Join(writeTwo(dir), errors.New("no disk")) })
	require.EqualError(t, err, "no disk")
	require.NoDirExists(t, filepath.Join(cache, "k"))
	require.NoDirExists(t, filepath.Join(cache, "k.tmp"))
	require.NoError(t, os.MkdirAll(filepath.Join(cache, "k.tmp", "old"), 0o700)) // a killed process left it
	dir, err := corpus.Folder(t.Context(), cache, "k", nil, writeTwo)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(dir, "old"))
}

func TestWaitingForABuildEndsWithTheContext(t *testing.T) {
	cache := t.TempDir()
	building, finish := make(chan struct{}), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := corpus.Folder(t.Context(), cache, "k", nil, func(dir string) error { close(building); <-finish; return writeTwo(dir) })
		if err != nil {
			t.Error(err)
		}
	})
	<-building
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := corpus.Folder(ctx, cache, "k", nil, writeTwo)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "waiting for another process that builds the index")
	close(finish)
	wait.Wait()
}

// TestProcessesBuildOnce starts this test as processes that all need one folder.
func TestProcessesBuildOnce(t *testing.T) {
	if cache := os.Getenv("CORPUS_TEST_CACHE"); cache != "" {
		_, err := corpus.Folder(t.Context(), cache, "k", nil, func(dir string) error {
			log, err := os.OpenFile(filepath.Join(cache, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			_, err = log.WriteString("built\n")
			return errors.Join(err, log.Close(), writeTwo(dir))
		})
		require.NoError(t, err)
		return
	}
	cache := t.TempDir()
	var wait sync.WaitGroup
	for range 6 {
		wait.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesBuildOnce$")
			c.Env = append(os.Environ(), "CORPUS_TEST_CACHE="+cache)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wait.Wait()
	log, err := os.ReadFile(filepath.Join(cache, "log"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "built\n"))
}
