package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckpointsAreComparedFileByFile(t *testing.T) {
	was, is := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, dir := range []string{was, is} {
		write(dir, "model.safetensors", "weights")
		write(dir, "trainer/state.json", "{}")
		write(dir, StateFile, dir) // holds times
	}
	require.NoError(t, Compare(was, is))
	write(is, "model.safetensors", "weigths")
	require.EqualError(t, Compare(was, is), "a weight differs in model.safetensors, first at byte 4")
	write(is, "model.safetensors", "weights")
	write(is, "trainer/state.json", "{ }")
	require.EqualError(t, Compare(was, is), "the file differs in trainer/state.json, first at byte 1")
	require.Equal(t, &Difference{"trainer/state.json", 1}, Compare(was, is))
	require.NoError(t, os.Remove(filepath.Join(is, "trainer/state.json")))
	require.ErrorIs(t, Compare(was, is), os.ErrNotExist)
}
