//go:build unix

package orchestrator

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
)

// Of two processes in one run folder the second is refused before it writes anything; the first one's end, however it comes,
// lets it in.
func TestARunFolderIsOfOneProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	started := func(resume bool) (*run, error) {
		r := &run{dir: dir, session: &session{job: &job.Job{}}, options: Options{Resume: resume, Out: &bytes.Buffer{}}}
		if resume {
			if err := r.lock(); err != nil {
				return r, err
			}
		}
		return r, r.makeFolder(r.job)
	}
	ended := func(r *run) {
		t.Helper()
		require.NoError(t, r.db.Close())
		require.NoError(t, r.metrics.Close())
		r.unlock()
	}
	first, err := started(false)
	require.NoError(t, err)
	require.NoError(t, first.log(map[string]any{"step": 0}))
	for _, resume := range []bool{false, true} {
		second, err := started(resume)
		require.EqualError(t, err, "orchestrator: another process trains in "+dir+"; wait until it has ended, or give another folder with --output")
		require.Nil(t, second.db)
		require.Nil(t, second.unlock)
	}
	ended(first)
	late, err := started(false)
	require.ErrorContains(t, err, dir+" holds a run already; continue it with --resume")
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

// A folder on a file system without locks is used all the same, with a note.
func TestAFolderThatCannotBeLockedIsNoted(t *testing.T) {
	var out bytes.Buffer
	r := &run{dir: filepath.Join(t.TempDir(), "none"), options: Options{Out: &out}}
	require.NoError(t, r.lock())
	require.Nil(t, r.unlock)
	require.Contains(t, out.String(), "no such file or directory); see to it that no other process trains there\n")
}

// Ranks that do not end are killed, all of them at one deadline.
func TestRanksThatDoNotEndAreKilled(t *testing.T) {
	r := &ranks{}
	var all []*child
	for rank := range 3 {
		c := &child{rank: rank + 1, cmd: exec.Command("sleep", "600"), ended: make(chan struct{})}
		require.NoError(t, c.cmd.Start())
		go func() {
			defer close(c.ended)
			_ = c.cmd.Wait() // its state says more than the error
		}()
		all = append(all, c)
	}
	r.children = all
	require.NoError(t, r.leave())
	for _, c := range all {
		status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		require.Equal(t, syscall.SIGKILL, status.Signal())
	}
}
