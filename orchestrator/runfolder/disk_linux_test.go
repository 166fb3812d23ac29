package runfolder

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// A run whose store only lacks room to be read is not offered for deletion, nor deleted: what it holds is not known.
func TestARunOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=400k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	path := filepath.Join(dir, store.File)
	db, err := store.Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600), syscall.ENOSPC)
	for _, overwrite := range []bool{false, true} {
		f := New(dir, false)
		f.Overwrite = overwrite
		err = f.Check()
		require.EqualError(t, err, "store: "+path+": disk I/O error (4874); free some space on its disk, then try again")
		var input *job.Error
		require.False(t, errors.As(err, &input), "nothing is wrong with what was asked for")
	}
}
