package checkpoint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPruneKeepsTheBest(t *testing.T) {
	f := Folder{Dir: t.TempDir(), Keep: 1}
	for _, name := range []string{"step-10", "step-20", "step-30"} {
		require.NoError(t, os.MkdirAll(filepath.Join(f.Dir, name), 0o755))
	}
	require.Empty(t, f.Target(Best))
	require.NoError(t, pointTo(filepath.Join(f.Dir, Best), "step-10"))
	require.NoError(t, f.prune("step-30"))
	require.DirExists(t, filepath.Join(f.Dir, "step-10"))
	require.NoDirExists(t, filepath.Join(f.Dir, "step-20"))
	require.NoError(t, f.PointToBest(30))
	require.Equal(t, "step-30", f.Target(Best))
	require.NoDirExists(t, filepath.Join(f.Dir, "step-10"))
}

// A process that was killed while it wrote a checkpoint leaves a folder, and one of an older program another one that was written within it.
func TestUnfinishedCheckpointsAreRemoved(t *testing.T) {
	f := Folder{Dir: t.TempDir(), Keep: 2}
	require.NoError(t, f.Save(State{Step: 5}, func(string) error { return nil }))
	for _, name := range []string{".step-10.1.tmp", "..step-10.1.tmp.2.tmp", "notes.tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(f.Dir, name, "trainer"), 0o755))
	}
	require.NoError(t, RemoveUnfinished(f.Dir))
	entries, err := os.ReadDir(f.Dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"last", "notes.tmp", "step-5"}, names)
}

// A checkpoint that does not fit is told in one short line, with what to do; the one before stays the last.
func TestACheckpointThatDoesNotFit(t *testing.T) {
	f := Folder{Dir: t.TempDir(), Keep: 1}
	require.NoError(t, f.Save(State{Step: 1}, func(string) error { return nil }))
	err := f.Save(State{Step: 2}, func(dir string) error {
		return fmt.Errorf("modelfile: %w", &fs.PathError{Op: "write", Path: filepath.Join(dir, "model.safetensors"), Err: syscall.ENOSPC})
	})
	require.EqualError(t, err, "orchestrator: checkpoint after step 2: "+f.Dir+": no space left on device; free some space on its disk, then continue the run with --resume")
	require.Equal(t, "step-1", f.Target(Last))
}
