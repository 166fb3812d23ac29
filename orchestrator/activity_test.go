package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/session"
)

// An interruption is told what is let end, and about how long that takes, as far as the run knows by then.
func TestWhatAnInterruptionFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &activity{}
		require.Equal(t, "stopping: what was sampled stays in the log; then a checkpoint is written", a.interrupted())
		a.begin(updating, "the update of step %d", 1)
		require.Equal(t, "stopping: finishing what cannot be cut: the update of step 1; then a checkpoint is written", a.interrupted())
		time.Sleep(30 * time.Second)
		a.begin(saving, "the checkpoint after step 1")
		require.Equal(t, "stopping: finishing what cannot be cut: the checkpoint after step 1", a.interrupted())
		time.Sleep(5 * time.Second)
		a.begin(sampling, "waiting for the batch of step 2")
		require.Equal(t, "stopping: what was sampled stays in the log; then a checkpoint is written (about 5s)", a.interrupted())
		a.begin(updating, "the update of step 2")
		time.Sleep(10 * time.Second)
		require.Equal(t, "stopping: finishing what cannot be cut: the update of step 2; then a checkpoint is written (about 25s)", a.interrupted())
		time.Sleep(time.Minute)
		require.Equal(t, "stopping: finishing what cannot be cut: the update of step 2; then a checkpoint is written (about 5s)", a.interrupted())
	})
}

// loaded is an engine that tells how busy it is.
type loaded struct {
	engines.Engine
	load []runfolder.Load
}

func (l loaded) Load() (out []engines.Load) {
	for _, x := range l.load {
		out = append(out, engines.Load(x))
	}
	return out
}

// Another process reads what a run does and waits for while it runs, and how it ended.
func TestNowIsWritten(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"job.yaml", "store.db"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	board := watchdog.NewBoard()
	ctx, cancel := context.WithCancel(board.On(t.Context()))
	wait := watchdog.Enter(ctx, "engine", "train-0-0-0-0")
	a := &activity{}
	a.begin(sampling, "waiting for the batch of step 1")
	busy := []runfolder.Load{{Running: 3, Slots: 64, Waiting: 2}, {Server: "http://127.0.0.1:8001", Slots: 64, Down: "down: it does not answer"}}
	outstanding := &schedule.Groups{Sampling: 3, Ended: 2, Training: 4, Batch: 4, Most: 12, Behind: 1, Staleness: 1}
	b := showNow(ctx, runfolder.New(dir, false), a, func(n *runfolder.Now) { n.Engine, n.Groups = loadOf(loaded{load: busy}), outstanding }, func(text string) { t.Error(text) })
	read := func() *runfolder.Now {
		n, err := runfolder.ReadNow(dir)
		require.NoError(t, err)
		return n
	}
	require.Eventually(t, func() bool { n := read(); return n != nil && len(n.Waits) == 1 }, 10*time.Second, 10*time.Millisecond)
	n := read()
	require.True(t, n.Running(time.Now()))
	require.Equal(t, "waiting for the batch of step 1", n.Doing)
	require.Equal(t, "train-0-0-0-0", n.Waits[0].Oldest)
	require.Equal(t, busy, n.Engine)
	require.Equal(t, outstanding, n.Groups)
	wait.Leave()
	cancel() // an interruption: what follows is told too
	a.begin(saving, "the checkpoint after step 0")
	require.Eventually(t, func() bool { n := read(); return n.Doing == "the checkpoint after step 0" && len(n.Waits) == 0 }, 10*time.Second, 10*time.Millisecond)
	b.stop(runfolder.EndedFailed, errors.New("no space is left"))
	n = read()
	require.False(t, n.Running(time.Now()))
	require.Equal(t, []string{runfolder.EndedFailed, "no space is left"}, []string{n.Ended, n.Error})
	require.Empty(t, n.Engine)
	require.Nil(t, n.Groups)
	(*nowBoard)(nil).stop("", nil)

	failed := make(chan string, 2) // a folder that cannot be written is told of once
	b = showNow(t.Context(), runfolder.New(filepath.Join(dir, "nowhere"), false), a, func(n *runfolder.Now) { n.Engine = loadOf(nil) }, func(text string) { failed <- text })
	require.Contains(t, <-failed, "cannot be written for agentfly status")
	b.stop(runfolder.EndedDone, nil)
	require.Empty(t, failed)
}

// A job that is refused leaves what the run's last process said of its end. A run that began with it, or goes on with it, says its own. What was noted at
// its end is told.
func TestTheEndOfARunWhoseJobIsRefused(t *testing.T) {
	refused := job.InputError(errors.New("refused"))
	for name, c := range map[string]struct {
		before *runfolder.Now
		goesOn bool
		want   []string
	}{
		"a run that had ended":   {&runfolder.Now{Ended: runfolder.EndedDone}, false, []string{runfolder.EndedDone, ""}},
		"a new run":              {nil, false, []string{runfolder.EndedFailed, "refused"}},
		"a run that had gone on": {&runfolder.Now{Ended: runfolder.EndedDone}, true, []string{runfolder.EndedFailed, "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Load("../examples/tiny.yaml")
			require.NoError(t, err)
			ranks, err := processes.Of(j, processes.Launch{})
			require.NoError(t, err)
			var out strings.Builder
			r := run{options: Options{Out: &out}, folder: runfolder.New(t.TempDir(), true), session: session.New(j), ranks: ranks, goesOn: c.goesOn}
			r.session.Notes.Note("its log does not fit")
			if c.before != nil {
				require.NoError(t, r.folder.WriteNow(*c.before))
			}
			r.now = showNow(t.Context(), r.folder, &activity{}, func(*runfolder.Now) {}, func(text string) { t.Error(text) })
			require.NoError(t, r.close(refused))
			require.Equal(t, "note: its log does not fit\n", out.String())
			n, err := runfolder.ReadNow(r.folder.Dir)
			require.NoError(t, err)
			require.Equal(t, c.want, []string{n.Ended, n.Error})
		})
	}
}
