package chess

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/resources"
)

// slow is an engine that answers when the file "free" is there, and says in the file "asked" that it was asked.
func slow(t *testing.T) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "slow")
	script := "#!/bin/sh\ncd " + dir + "\n" + `while read line; do case "$line" in
uci) echo uciok;; isready) echo readyok;; go*) touch asked; while [ ! -e free ]; do sleep 0.01; done; echo bestmove a1a7;; esac; done`
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path, dir
}

func exists(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, 8*time.Second, 5*time.Millisecond, path)
}

// A trajectory that is cancelled does not end the engine, which all share.
func TestCancelledQuestionKeepsTheEngine(t *testing.T) {
	path, dir := slow(t)
	s := open(t, dir, map[string]any{"engine": path})
	_, err := s.engine.name(t.Context())
	require.NoError(t, err)
	p := s.engine.run
	const fen = "7k/8/8/8/8/8/1R6/R6K w - - 0 1"
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.engine.best(gone, fen)
	require.ErrorIs(t, err, context.Canceled)
	require.Same(t, p, s.engine.run)

	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() { _, err := s.engine.best(ctx, fen); got <- err }()
	exists(t, filepath.Join(dir, "asked"))
	cancel()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "free"), nil, 0o600))
	require.NoError(t, <-got)
	require.Same(t, p, s.engine.run)
	v, err := s.engine.best(t.Context(), fen)
	require.NoError(t, err)
	require.Equal(t, "a1a7", v.best)
}

// Who waits for puzzles that somebody else looks for can give up, and a source that is closed looks for no more.
func TestSearchThatOthersWaitFor(t *testing.T) {
	path, dir := slow(t)
	r := resources.New(resources.Options{Cache: dir})
	made, err := New(t.Context(), r, map[string]any{"engine": path})
	require.NoError(t, err)
	s := made.(*source)
	got := make(chan error, 1)
	go func() { _, err := s.Tasks(environments.Train, 5000); got <- err }()
	exists(t, filepath.Join(dir, "asked"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	left := make(chan error, 1)
	go func() { _, err := s.puzzles(ctx, environments.Train, 1); left <- err }()
	select {
	case err := <-left:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(5 * time.Second):
		t.Error("it waits for the search of another one")
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "free"), nil, 0o600))
	require.Error(t, <-got)
	require.NoError(t, <-closed)
	require.NoError(t, r.Close())
}

// The least number of actions is that of the longest mate that is asked for.
func TestStepsReachTheMate(t *testing.T) {
	r := resources.New(resources.Options{})
	path, _ := slow(t)
	for _, mates := range [][]int{nil, {2}, {1, 2}} {
		params := map[string]any{"max_steps": 1, "engine": path}
		if mates != nil {
			params["mates"] = mates
		}
		_, err := New(t.Context(), r, params)
		require.ErrorContains(t, err, "max_steps is 1")
	}
	s, err := New(t.Context(), r, map[string]any{"max_steps": 1, "mates": []int{1}, "engine": path})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// The id of a task names its puzzle in every run: sources of other mates have other ids.
func TestTaskIDs(t *testing.T) {
	dir := t.TempDir()
	known := map[string]any{}
	for _, mates := range [][]int{{1}, {2}, {1, 2}, {2, 1}} {
		tasks, err := open(t, dir, map[string]any{"mates": mates}).Tasks(environments.Train, 12)
		require.NoError(t, err)
		for _, task := range tasks {
			if fields, ok := known[task.ID]; ok {
				require.Equal(t, fields, task.Fields, task.ID)
			}
			known[task.ID] = task.Fields
		}
	}
}

// A move that is none leaves the start as it was, and its name too.
func TestAnchorOfTheStart(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	m, err := environments.Open(s, nil, environments.Options{Pool: pool.Options{Size: 1}})
	require.NoError(t, err)
	defer m.Close()
	e, err := m.Begin(t.Context(), pool.Owner{Name: "test"}, task(puzzle{FEN: "7k/8/8/8/8/8/1R6/R6K w - - 0 1", Mate: 2}))
	require.NoError(t, err)
	defer e.End()
	first := e.Anchor()
	for _, c := range []struct {
		move  string
		start bool
	}{{"castle", true}, {"a1a7", false}} {
		r, err := e.Step(t.Context(), environments.Action{Text: c.move})
		require.NoError(t, err)
		require.Equal(t, c.start, r.Anchor == first, c.move)
	}
}
