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

// A checkpoint of a step that is saved again is there after a kill at any moment, also where folders cannot be exchanged at once: it is moved aside
// for the new one, as modelfile.ReplaceDir does there.
func TestACheckpointThatWasMovedAsideComesBack(t *testing.T) {
	for _, c := range []struct{ renamed, loaded bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		run := t.TempDir()
		f := Folder{Dir: FolderOf(run), Keep: 1}
		require.NoError(t, os.MkdirAll(f.Dir, 0o755))
		require.NoError(t, f.Save(State{Step: 10}, func(string) error { return nil }))
		dir, tmp := filepath.Join(f.Dir, "step-10"), filepath.Join(f.Dir, ".step-10.123.tmp")
		require.NoError(t, os.CopyFS(tmp, os.DirFS(dir)))
		require.NoError(t, os.Rename(dir, tmp+".old"))
		if c.renamed {
			require.NoError(t, os.Rename(tmp, dir))
		}
		var s State
		if c.loaded { // as a run that goes on does before it opens the folder
			require.NoError(t, PutBack(run))
			_, err := s.Load(run)
			require.NoError(t, err)
		}
		require.NoError(t, RemoveUnfinished(f.Dir))
		from, err := s.Load(run)
		require.NoError(t, err)
		require.Equal(t, "step-10", filepath.Base(from))
		require.Equal(t, 10, s.Step)
		entries, err := os.ReadDir(f.Dir)
		require.NoError(t, err)
		require.Len(t, entries, 2, "last and step-10")
	}
}

// A whole checkpoint that was moved aside is not removed for one that lacks its state.
func TestACheckpointThatWasMovedAsideStaysForAnIncompleteOne(t *testing.T) {
	f := Folder{Dir: t.TempDir(), Keep: 1}
	require.NoError(t, f.Save(State{Step: 10}, func(string) error { return nil }))
	dir, old := filepath.Join(f.Dir, "step-10"), filepath.Join(f.Dir, ".step-10.123.tmp.old")
	require.NoError(t, os.Rename(dir, old))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, TrainerFolder), 0o755))
	require.NoError(t, RemoveUnfinished(f.Dir))
	require.FileExists(t, filepath.Join(old, StateFile))
}

// A run whose last checkpoint is gone does not begin again at its first step: it is refused, with what to do. One that has saved none yet begins there.
func TestALastCheckpointThatIsGone(t *testing.T) {
	run := t.TempDir()
	f := Folder{Dir: FolderOf(run), Keep: 1}
	require.NoError(t, os.MkdirAll(f.Dir, 0o755))
	var s State
	from, err := s.Load(run)
	require.NoError(t, err)
	require.Empty(t, from)
	require.NoError(t, f.Save(State{Step: 10}, func(string) error { return nil }))
	dir := filepath.Join(f.Dir, "step-10")
	remedy := " is gone: point " + LastOf(run) + " to the checkpoint before it, or begin a new run"
	require.NoError(t, os.Remove(filepath.Join(dir, StateFile)))
	_, err = s.Load(run)
	require.EqualError(t, err, "orchestrator: checkpoint: "+filepath.Join(dir, StateFile)+remedy)
	require.NoError(t, os.RemoveAll(dir))
	_, err = s.Load(run)
	require.EqualError(t, err, "orchestrator: checkpoint: "+dir+remedy)
	require.ErrorIs(t, err, ErrGone)
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
