//go:build unix

package runfolder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

func ignored(string) {}

// A disk that is full when a line of metrics.jsonl is written has the advice of a store that finds it full.
func TestALineOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	f := New(t.TempDir(), false)
	f.Metrics = full
	require.EqualError(t, f.Log(map[string]any{"step": 0}),
		"orchestrator: metrics.jsonl: write /dev/full: no space left on device; free some space on its disk, then continue the run with --resume")
}

// Of two processes in one run folder the second is refused before it writes anything; the first one's end, however it comes,
// lets it in.
func TestARunFolderIsOfOneProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	started := func(resume bool) (*Folder, error) {
		f := New(dir, resume)
		if resume {
			if err := f.Lock(ignored); err != nil {
				return f, err
			}
		}
		return f, f.Open(&job.Job{}, ignored)
	}
	ended := func(f *Folder) {
		t.Helper()
		require.NoError(t, f.Close())
	}
	first, err := started(false)
	require.NoError(t, err)
	require.NoError(t, first.Log(map[string]any{"step": 0}))
	for _, resume := range []bool{false, true} {
		second, err := started(resume)
		require.EqualError(t, err, "orchestrator: another process trains in "+dir+" or serves a gateway there; wait until it has ended, or give another folder with --output")
		require.Nil(t, second.DB)
		require.Nil(t, second.unlock)
	}
	ended(first)
	late, err := started(false)
	require.ErrorContains(t, err, dir+" holds a run of 1 step already; continue it with --resume")
	late.unlock()
	checkpoints := filepath.Join(dir, "checkpoints")
	for _, name := range []string{".step-4.123.tmp", "step-2", ".step-6.1.tmp.old"} {
		require.NoError(t, os.MkdirAll(filepath.Join(checkpoints, name, "trainer"), 0o755))
	}
	third, err := started(true)
	require.NoError(t, err)
	ended(third)
	left, err := os.ReadDir(checkpoints)
	require.NoError(t, err)
	require.Len(t, left, 2, "a checkpoint that a killed process was writing is removed")
	require.Equal(t, []string{".step-6.1.tmp.old", "step-2"}, []string{left[0].Name(), left[1].Name()})
	lines, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	require.Equal(t, "{\"step\":0}\n", string(lines))
}

// Who begins while the process before is ending, as a gateway that is started anew does, waits for it.
func TestAFolderWhoseProcessIsEndingIsAwaited(t *testing.T) {
	dir := t.TempDir()
	before, next := New(dir, false), New(dir, false)
	require.NoError(t, before.Lock(ignored))
	ended := make(chan error)
	go func() {
		time.Sleep(150 * time.Millisecond)
		ended <- before.Close()
	}()
	require.NoError(t, next.Lock(ignored))
	require.NoError(t, <-ended)
	require.NoError(t, next.Close())
}

// Two who look at once whether a folder is locked do not take each other for its process.
func TestLookingLocksNobodyOut(t *testing.T) {
	dir := t.TempDir()
	done := make(chan bool)
	for range 2 {
		go func() {
			seen := false
			for range 20000 {
				seen = locked(dir) || seen
			}
			done <- seen
		}()
	}
	for range 2 {
		require.False(t, <-done)
	}
	f := New(dir, false)
	require.NoError(t, f.Lock(ignored))
	require.True(t, locked(dir))
	require.NoError(t, f.Close())
	require.False(t, locked(dir))
}

// A folder on a file system without locks is used all the same, with a note.
func TestAFolderThatCannotBeLockedIsNoted(t *testing.T) {
	f, note := New(filepath.Join(t.TempDir(), "none"), false), ""
	require.NoError(t, f.Lock(func(text string) { note = text }))
	require.Nil(t, f.unlock)
	require.Contains(t, note, "no such file or directory); see to it that no other process writes there")
}

// The name of a run's weights stays when it is resumed, and changes when its folder was copied: two of the same name could
// share a server and not notice.
func TestTheNameOfARunStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	fresh := 0
	begin := func(dir string, resume bool) string {
		fresh++
		f := New(dir, resume)
		require.NoError(t, f.Identify(fmt.Sprintf("calculator-%012x", fresh)))
		require.NoError(t, f.Open(&job.Job{}, ignored))
		require.NoError(t, f.Close())
		return f.Name
	}
	name := begin(dir, false)
	require.Regexp(t, `^calculator-[0-9a-f]{12}$`, name)
	require.Equal(t, name, begin(dir, true))
	require.NotEqual(t, name, begin(dir+"2", false), "another run of the job")

	moved := dir + "-copy"
	require.NoError(t, os.Rename(dir, moved))
	other := begin(moved, true)
	require.Regexp(t, `^calculator-[0-9a-f]{12}$`, other)
	require.NotEqual(t, name, other)
	require.Equal(t, other, begin(moved, true))

	require.NoError(t, os.Rename(moved, dir)) // a copy that lies where the run lay, as in another container
	was := begin(dir, true)
	require.Equal(t, was, begin(dir, true))
	require.NoError(t, os.Rename(dir, moved))
	require.NoError(t, os.CopyFS(dir, os.DirFS(moved)))
	copied := begin(dir, true)
	require.NotEqual(t, was, copied, "store.db is another file")
	require.Equal(t, copied, begin(dir, true))
	fact := func(name, value string) {
		db, err := store.Open(filepath.Join(dir, store.File))
		require.NoError(t, err)
		require.NoError(t, db.SetFact(t.Context(), name, value))
		require.NoError(t, db.Close())
	}
	fact(placeFact, "")
	require.Equal(t, copied, begin(dir, true), "a run of before places")
	fact(placeFact, "elsewhere")
	require.NotEqual(t, copied, begin(dir, true), "another host")

	old := filepath.Join(t.TempDir(), "old") // a run of before names
	require.NoError(t, os.MkdirAll(old, 0o755))
	db, err := store.Open(filepath.Join(old, store.File))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Equal(t, begin(old, true), begin(old, true))
}
