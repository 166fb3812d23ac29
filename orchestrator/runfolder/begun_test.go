package runfolder

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// run makes the folder of a run that ended after so many steps.
func ran(t *testing.T, steps int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	f := New(dir, false)
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	for step := range steps {
		require.NoError(t, f.DB.AddStep(context.Background(), step, map[string]float64{"reward/mean": 1}, nil))
		require.NoError(t, f.Log(map[string]any{"step": step, "reward/mean": 1}))
	}
	require.NoError(t, f.Log(map[string]any{"step": 0, "eval": map[string]any{}}))
	require.NoError(t, f.Close())
	return dir
}

// A run that ended before its first step does not keep another one from its folder: nothing of it is left, and a note says so.
func TestARunThatDidNoStepMakesPlace(t *testing.T) {
	dir := ran(t, 0)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("of the user"), 0o600))
	state := func(name string, step int) { // as an interruption before the first step saves it
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "checkpoints", name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoints", name, checkpoint.StateFile), []byte(`{"step": `+string(rune('0'+step))+`}`), 0o600))
		_ = os.Remove(filepath.Join(dir, "checkpoints", checkpoint.Last)) // it may not be there
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "checkpoints", checkpoint.Last)))
	}
	state("step-0", 0)
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	require.NoError(t, db.SetFact(t.Context(), "of the dead", "run"))
	require.NoError(t, db.Close())

	var notes []string
	f := New(dir, false)
	require.NoError(t, f.Check())
	require.NoError(t, f.Open(&job.Job{}, func(note string) { notes = append(notes, note) }))
	require.Equal(t, []string{"the run that " + dir + " held ended before its first step: it is removed, and this one begins"}, notes)
	fact, err := f.DB.Reader.Fact("of the dead")
	require.NoError(t, err)
	require.Empty(t, fact)
	require.NoError(t, f.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Contains(t, names, "mine.txt")
	require.False(t, slices.Contains(names, "job.1.yaml"))
	lines, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	require.Empty(t, lines)
	require.NoFileExists(t, checkpoint.LastOf(dir))

	state("step-2", 2) // its store lost its end
	require.ErrorContains(t, New(dir, false).Check(), "holds a run of 2 steps already")
}

// A process that samples its first step has the folder: nobody takes it away.
func TestALivingRunWithoutAStepKeepsItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	living := New(dir, false)
	require.NoError(t, living.Open(&job.Job{}, func(string) {}))
	second := New(dir, false)
	require.EqualError(t, second.Open(&job.Job{}, func(string) {}), "orchestrator: another process trains in "+dir+" or serves a gateway there; wait until it has ended, or give another folder with --output")
	require.FileExists(t, filepath.Join(dir, store.File))
	require.NoError(t, living.DB.SetFact(t.Context(), "is", "there"))
	require.NoError(t, living.Close())
}

func TestOverwriteRemovesTheRunAndNothingElse(t *testing.T) {
	dir := ran(t, 3)
	steps, held, err := Steps(dir)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, 3, steps)
	require.EqualError(t, New(dir, false).Check(), dir+" holds a run of 3 steps already; continue it with --resume, give another folder with --output, or delete the run with --overwrite")
	for _, name := range []string{"mine.txt", "summary.json", "job.1.yaml", "vllm.log", ResourcesFile, ControlFile, sessionkey.File} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	f := New(dir, false)
	f.Overwrite = true

	require.NoError(t, f.Check())
	require.FileExists(t, filepath.Join(dir, "summary.json"), "nothing is deleted before the new run can begin")
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	require.NoError(t, f.Close())
	require.FileExists(t, filepath.Join(dir, "mine.txt"))
	require.NoFileExists(t, filepath.Join(dir, "summary.json"))
	require.NoFileExists(t, filepath.Join(dir, "job.1.yaml"))
	require.NoFileExists(t, filepath.Join(dir, ResourcesFile), "agentfly resources would tell of the deleted run's")
	require.NoFileExists(t, filepath.Join(dir, ControlFile))
	require.NoFileExists(t, filepath.Join(dir, "vllm.log"), "the new run's is appended to it")
	require.NoFileExists(t, filepath.Join(dir, sessionkey.File), "agents of the deleted run would have keys of the new one's sessions")
	steps, held, err = Steps(dir)
	require.NoError(t, err)
	require.True(t, held)
	require.Zero(t, steps)
	_, held, err = Steps(filepath.Join(dir, "nowhere"))
	require.NoError(t, err)
	require.False(t, held)
}

// A job folder, such as agentfly init writes, is not taken for a run that did no step: its job.yaml would be lost. Neither is a file.
func TestFilesOfOthersAreNotWrittenOver(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "job.yaml")
	require.NoError(t, os.WriteFile(mine, []byte("of the user"), 0o600))
	for _, overwrite := range []bool{false, true} {
		f := New(dir, false)
		f.Overwrite = overwrite
		want := dir + " is no run folder (it has no store.db), and its job.yaml would be overwritten; give another folder with --output"
		require.EqualError(t, f.Check(), want)
		require.EqualError(t, f.Open(&job.Job{}, func(string) {}), want)
		require.NoError(t, f.Close())
		text, err := os.ReadFile(mine)
		require.NoError(t, err)
		require.Equal(t, "of the user", string(text))
	}
	require.EqualError(t, New(mine, false).Check(), mine+" is a file; give a folder with --output")
}

// What a gateway recorded is no run that did no step: a run in its folder would lose it, or train beside it.
func TestWhatAGatewayRecordedIsKept(t *testing.T) {
	for name, add := range map[string]func(*store.Store) error{
		"a session that is open": func(db *store.Store) error {
			return db.Admit(context.Background(), store.Admission{Phase: store.Gateway, Size: 1, Task: trajectory.Task{ID: "a"}})
		},
		"a session that ended": func(db *store.Store) error {
			return db.AddTrajectory(context.Background(), store.Gateway, trajectory.Task{ID: "a"}, &trajectory.Trajectory{ID: "gateway-0-0-0", TaskID: "a"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, err := store.Open(filepath.Join(dir, store.File))
			require.NoError(t, err)
			require.NoError(t, add(db))
			require.NoError(t, db.Close())
			for _, overwrite := range []bool{false, true} {
				f := New(dir, false)
				f.Overwrite = overwrite
				want := dir + " holds what a gateway recorded; give another folder with --output"
				require.EqualError(t, f.Check(), want)
				require.EqualError(t, f.Open(&job.Job{}, func(string) {}), want)
				require.NoError(t, f.Close())
			}
			require.EqualError(t, New(dir, true).Check(), dir+" holds what a gateway recorded, and no run to resume; leave --resume out, and give another folder with --output")
			from, err := store.OpenReader(filepath.Join(dir, store.File))
			require.NoError(t, err)
			kept, err := from.Holds(t.Context(), store.Gateway)
			require.NoError(t, err)
			require.True(t, kept)
			require.NoError(t, from.Close())
		})
	}
}

// A gateway could record into the folder of a run that had its job written later: that is neither one's to delete.
func TestARunInWhichAGatewayRecordedIsKept(t *testing.T) {
	dir := ran(t, 2)
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: store.Gateway, Size: 1, Task: trajectory.Task{ID: "a"}}))
	require.NoError(t, db.Close())
	for _, overwrite := range []bool{false, true} {
		f := New(dir, false)
		f.Overwrite = overwrite
		require.EqualError(t, f.Check(), dir+" holds what a gateway recorded; give another folder with --output")
	}
}

// A store that cannot be read and lies beside no job.yaml may be a gateway's; that of a run is the user's to delete.
func TestAStoreThatCannotBeReadIsKept(t *testing.T) {
	for says, harm := range map[string]func(path string) error{
		"cannot be read as a store": func(path string) error { return os.WriteFile(path, []byte("no store at all, but text"), 0o600) },
		"has version 0":             func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"has version 9": func(path string) error {
			db, err := sql.Open("sqlite", path)
			if err == nil {
				_, err = db.Exec("PRAGMA user_version = 9")
				err = errors.Join(err, db.Close())
			}
			return err
		},
	} {
		t.Run(says, func(t *testing.T) {
			dir := ran(t, 1)
			path := filepath.Join(dir, store.File)
			require.NoError(t, harm(path))
			over := New(dir, false)
			over.Overwrite = true
			require.NoError(t, over.Check(), "job.yaml says that it is a run's")
			require.ErrorContains(t, New(dir, false).Check(), "or delete the run with --overwrite")
			require.NoError(t, os.Remove(filepath.Join(dir, JobFile)))
			for _, overwrite := range []bool{false, true} {
				f := New(dir, false)
				f.Overwrite = overwrite
				err := f.Open(&job.Job{}, func(string) {})
				require.ErrorContains(t, err, dir+" may hold what a gateway recorded: its store.db cannot be read (store: "+path+" "+says)
				require.ErrorContains(t, err, ") and has no job.yaml of a run beside it; continue it with --resume if it is a run's, give another folder with --output, or move it away")
				require.NoError(t, f.Close())
				require.FileExists(t, path)
			}
		})
	}
}

// A run that was killed before it wrote its job, or while it made its store, has nothing that it could not go on with.
func TestARunWithoutItsJobIsResumed(t *testing.T) {
	for name, begin := range map[string]func(path string) error{
		"an empty store": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"no job": func(path string) error {
			db, err := store.Open(path)
			return errors.Join(err, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, begin(filepath.Join(dir, store.File)))
			f := New(dir, true)
			require.NoError(t, f.Check())
			require.NoError(t, f.Open(&job.Job{}, func(string) {}))
			require.NoError(t, f.Close())
		})
	}
}
