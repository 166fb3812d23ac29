//go:build linux

package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/sandbox"
)

// What a killed process left is removed, also what it gave to another user as root; what a live one holds stays.
func TestFoldersOfKilledProcesses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	held, err := sandbox.TempFolder("held")
	require.NoError(t, err)
	left := filepath.Join(os.TempDir(), "agentfly-agent-1-locked")
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, "task.json"), nil, 0o600))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(left, 65534, 65534))
		require.NoError(t, os.Chown(held.Path(), 65534, 65534))
	}
	sandbox.RemoveStale()
	require.NoDirExists(t, left)
	require.DirExists(t, held.Path())
	require.NoError(t, held.Close())
	require.NoDirExists(t, held.Path())
}
