package repository

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/sandbox"
)

// A snapshot that does not fit on the host's disk is no fault of the instance: the reset may work at the next try.
func TestFullDisk(t *testing.T) {
	needGit(t)
	dir, disk := t.TempDir(), t.TempDir()
	base, _ := repo(t, filepath.Join(dir, "x__calc"))
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	require.NoError(t, os.Chmod(disk, 0o711))
	t.Setenv("TMPDIR", disk)
	e := player(t, sandbox.Auto, map[string]any{"instances": instanceFile(t, dir, base, nil)})
	_, err := e.Reset(t.Context(), task(map[string]any{"instance": "calc-0"}))
	require.ErrorContains(t, err, "calc-0: its snapshot does not fit on the disk of this machine: fatal: ")
	var wrong *environments.TaskError
	require.NotErrorAs(t, err, &wrong)
}
