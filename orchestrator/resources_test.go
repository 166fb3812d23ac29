package orchestrator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// Another process reads who holds the run's environments while the run goes on, and what was last known after it ended or was killed.
func TestTheRunFolderTellsWhoHoldsWhat(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), nil, 0o600))
	_, err := runfolder.ReadResources(dir)
	require.ErrorContains(t, err, "has not written resources.json")
	_, err = runfolder.ReadResources(filepath.Join(dir, "nowhere"))
	require.ErrorContains(t, err, "is no run folder")

	var mu sync.Mutex
	pools := []runfolder.Pool{{Name: "corridor", Size: 2, InUse: 1, Holders: []runfolder.Holder{{Name: "t1", Since: time.Now().UTC()}}, Queue: []runfolder.Holder{}}}
	b := showResources(runfolder.New(dir, false), func() []runfolder.Pool {
		mu.Lock()
		defer mu.Unlock()
		return pools
	}, func(text string) { t.Error(text) })
	read := func() runfolder.Resources {
		r, err := runfolder.ReadResources(dir)
		require.NoError(t, err)
		return r
	}
	require.Eventually(t, func() bool { _, err := runfolder.ReadResources(dir); return err == nil }, 5*time.Second, 10*time.Millisecond)
	r := read()
	require.True(t, r.Running(time.Now()))
	require.Equal(t, "t1", r.Pools[0].Holders[0].Name)
	mu.Lock()
	pools = []runfolder.Pool{{Name: "corridor", Size: 2, Waiting: 3}}
	mu.Unlock()
	require.Eventually(t, func() bool { return read().Pools[0].Waiting == 3 }, 5*time.Second, 50*time.Millisecond, "it is live")
	require.False(t, read().Running(time.Now().Add(time.Minute)), "silent for too long")
	gone := read()
	gone.PID = 1 << 22 // above the system's largest
	require.False(t, gone.Running(time.Now()), "killed")
	b.stop()
	require.False(t, read().Running(time.Now()))
	require.True(t, read().Ended)
	(*resourceBoard)(nil).stop()

	none := t.TempDir()
	b = showResources(runfolder.New(none, false), func() []runfolder.Pool { return nil }, func(text string) { t.Error(text) })
	b.stop()
	require.NoFileExists(t, filepath.Join(none, "resources.json"), "a run without pools")
}

// What the command prints is what was written.
func TestResourcesAsJSON(t *testing.T) {
	dir := t.TempDir()
	in := runfolder.Resources{Host: "h", PID: 7, Written: time.Now().UTC().Round(time.Second), Pools: []runfolder.Pool{{Name: "a", Failures: map[string]int64{"step": 2}, Step: &runfolder.Timed{Count: 3, Times: runfolder.Times{P50: 0.5, P99: 1}}}}}
	require.NoError(t, runfolder.New(dir, false).WriteResources(in))
	out, err := runfolder.ReadResources(dir)
	require.NoError(t, err)
	require.Equal(t, in, out)
	text, err := json.Marshal(out)
	require.NoError(t, err)
	require.Contains(t, string(text), `"step":{"count":3,"p50":0.5,"p99":1}`)
}
