package workspace

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spaces(t *testing.T) (*resources.Resources, *Workspaces) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r := resources.New(resources.Options{})
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		left, err := os.ReadDir(temp)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	s, err := Of(r)
	require.NoError(t, err)
	return r, s
}

// A file with several names takes its room once.
func TestSizeOfLinks(t *testing.T) {
	_, s := spaces(t)
	w, err := s.Get("a")
	require.NoError(t, err)
	require.NoError(t, w.Root().WriteFile("other", make([]byte, 10), 0o600))
	require.NoError(t, w.Root().WriteFile("file", make([]byte, 1000), 0o600))
	for _, name := range []string{"second", "third"} {
		require.NoError(t, w.Root().Link("file", name))
	}
	size, err := w.Size()
	require.NoError(t, err)
	require.EqualValues(t, 1010, size)
}

// ready waits until so many workspaces wait for a trajectory.
func ready(t *testing.T, r *resources.Resources, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.Pools().All()[0].Ready == n }, time.Minute, time.Millisecond)
}

// Spare workspaces are a pool of the job: a trajectory gets one that is prepared where one is ready, else a bare one at once, and what it had goes
// with it.
func TestAhead(t *testing.T) {
	r, s := spaces(t)
	var prepared atomic.Int32
	s.Ahead(2, func(_ context.Context, w *Workspace) error {
		prepared.Add(1)
		return w.Root().WriteFile("prepared", nil, 0o600)
	})
	require.Empty(t, r.Pools().All(), "nothing is made for a job that runs no trajectory")
	first, err := s.Get("first")
	require.NoError(t, err)
	require.NoFileExists(t, first.Dir()+"/prepared")
	ready(t, r, 2)
	second, err := s.Get("second")
	require.NoError(t, err)
	require.FileExists(t, second.Dir()+"/prepared")
	again, err := s.Get("second")
	require.NoError(t, err)
	require.Same(t, second, again)
	ready(t, r, 2)
	stats := r.Pools().All()[0]
	require.Equal(t, "workspaces", stats.Name)
	require.Equal(t, "second", stats.Holders[0].Owner.Name)
	require.EqualValues(t, 3, prepared.Load())
	s.End("first")
	s.End("second")
	s.End("second")
	require.NoDirExists(t, first.Dir())
	require.NoDirExists(t, second.Dir())
	require.Zero(t, r.Pools().All()[0].Lent)
	third, err := s.Get("second")
	require.NoError(t, err)
	require.NotSame(t, second, third)
	require.NoError(t, r.Close())
	require.NoDirExists(t, third.Dir())
	_, err = s.Get("late")
	require.ErrorContains(t, err, "the job has ended")
}

// A preparation that fails keeps nobody from a workspace: the call that needs what was to be prepared says what is wrong.
func TestAheadFails(t *testing.T) {
	r, s := spaces(t)
	var attached, closed atomic.Int32
	s.Ahead(2, func(_ context.Context, w *Workspace) error {
		attached.Add(1)
		_, err := w.Attach("process", func() (io.Closer, error) { return counter{&closed}, nil })
		return errors.Join(err, errors.New("there is no python3"))
	})
	for _, id := range []string{"a", "b", "c"} {
		w, err := s.Get(id)
		require.NoError(t, err)
		require.DirExists(t, w.Dir())
	}
	require.Eventually(t, func() bool { return r.Pools().All()[0].Failed > 0 }, time.Minute, time.Millisecond)
	_, err := s.Get("d")
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Equal(t, attached.Load(), closed.Load(), "what was prepared already ends")
}

type counter struct{ n *atomic.Int32 }

func (c counter) Close() error {
	c.n.Add(1)
	return nil
}

// Workspaces without a job close their spares too.
func TestClose(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := New()
	require.NoError(t, err)
	var attached, closed atomic.Int32
	s.Ahead(2, func(_ context.Context, w *Workspace) error {
		attached.Add(1)
		_, err := w.Attach("process", func() (io.Closer, error) { return counter{&closed}, nil })
		return err
	})
	_, err = s.Get("a")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.pools.All()[0].Ready == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
	require.EqualValues(t, 2, closed.Load())
	require.NoDirExists(t, s.base)
}
