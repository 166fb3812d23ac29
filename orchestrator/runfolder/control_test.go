package runfolder

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// running makes a folder whose process, this one, writes.
func running(t *testing.T) string {
	dir := t.TempDir()
	host, err := os.Hostname()
	require.NoError(t, err)
	require.NoError(t, New(dir, false).WriteNow(Now{Host: host, PID: os.Getpid(), Started: time.Now(), Written: time.Now()}))
	return dir
}

func actions(t *testing.T, r *Requests) (out []Action) {
	all, err := r.Next()
	require.NoError(t, err)
	for _, q := range all {
		out = append(out, q.Action)
	}
	return out
}

// What is asked for comes once, in order, and not from before the process began.
func TestRequestsComeOnce(t *testing.T) {
	dir := running(t)
	require.NoError(t, Ask(dir, Request{Action: Stop, By: "an earlier user"}))
	r := NewRequests(dir)
	require.Empty(t, actions(t, r))
	for _, a := range []Action{Checkpoint, Pause} {
		require.NoError(t, Ask(dir, Request{Action: a, By: "the page", At: time.Now()}))
	}
	require.Equal(t, []Action{Checkpoint, Pause}, actions(t, r))
	require.Empty(t, actions(t, r))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { _ = Ask(dir, Request{Action: Resume, By: strings.Repeat("x", 300)}) })
	}
	all.Wait()
	require.Len(t, actions(t, r), 50)
	require.NoError(t, os.Remove(filepath.Join(dir, ControlFile)))
	require.Empty(t, actions(t, r))
	require.NoError(t, Ask(dir, Request{Action: Pause}))
	require.Equal(t, []Action{Pause}, actions(t, r))
}

// A file that others wrote does not harm: garbage is passed over, half a line waits, what is no file is told.
func TestRequestsOfForeignFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ControlFile)
	r := NewRequests(dir)
	require.Empty(t, actions(t, r))
	require.NoError(t, os.WriteFile(path, []byte("\x00garbage\n{\"do\":\"explode\"}\n[]\n{\"do\":\"pause\"}\n{\"do\":\"st"), 0o600))
	require.Equal(t, []Action{Pause}, actions(t, r))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("op\"}\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, []Action{Stop}, actions(t, r))
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 3*mostAsked)+"\n{\"do\":\"resume\"}\n"), 0o600))
	var got []Action
	for range 5 {
		got = append(got, actions(t, r)...)
	}
	require.Equal(t, []Action{Resume}, got)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = r.Next()
	require.ErrorContains(t, err, "is no file")
}

func TestNobodyIsAsked(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, Ask(dir, Request{Action: Pause}), ErrNotRunning)
	require.NoError(t, New(dir, false).WriteNow(Now{Host: "another", PID: 1, Written: time.Now(), Ended: EndedDone}))
	require.ErrorIs(t, Ask(dir, Request{Action: Pause}), ErrNotRunning)
	require.NoFileExists(t, filepath.Join(dir, ControlFile))
	_, err := ParseAction("puase")
	require.ErrorContains(t, err, `there is no action "puase"; allowed: pause, resume, checkpoint, stop`)
	require.ErrorContains(t, err, "pause")
}
