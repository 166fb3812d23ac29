//go:build unix

package view

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// Files that no run wrote neither hold the page up nor fill its memory, and are told.
func TestNowOfForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, runfolder.NowFile)
	says := func(want string) {
		t.Helper()
		n := readNow(dir, time.Now())
		require.Equal(t, stateUnknown, n.State)
		require.Contains(t, n.Problem, want)
	}
	says("wrote nothing")
	for _, text := range []string{"", "{", `{"host":`, "[]", `{"pid":"x"}`} { // torn, foreign
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		says("cannot be read")
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat(" ", mostNow+1)), 0o644))
	says("which no run writes")
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o644)) // reading it would wait for ever
	says("is no file")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte(`{"host":"elsewhere","pid":-5,"written":"2999-01-01T00:00:00Z","since":"2999-02-01T00:00:00Z"}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, runfolder.ResourcesFile), []byte(`{"pools":null}`), 0o644))
	n := readNow(dir, time.Now())
	require.Zero(t, n.Age, "a clock that is ahead")
	require.Zero(t, n.For)
	require.Empty(t, n.Pools)
}
