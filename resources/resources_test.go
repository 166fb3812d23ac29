package resources

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfly/agentfly/internal/pool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// The job's pools are closed with it, before anything that their members may need.
func TestPools(t *testing.T) {
	r := New(Options{})
	var order []string
	p, err := pool.New(pool.Options{Name: "a", Warm: 1, Make: func(context.Context) (pool.Member, error) {
		return closer(func() { order = append(order, "member") }), nil
	}})
	require.NoError(t, err)
	require.NoError(t, r.Pools().Add(p))
	l, err := p.Acquire(t.Context(), pool.Owner{})
	require.NoError(t, err)
	r.OnClose(func() error { order = append(order, "later"); return nil })
	require.Equal(t, "a", r.Pools().All()[0].Name)
	require.NoError(t, r.Close())
	require.Equal(t, []string{"member", "later"}, order)
	<-l.Done()
	require.NoError(t, r.Close())
	_, err = p.Acquire(t.Context(), pool.Owner{})
	require.ErrorIs(t, err, pool.ErrClosed)
}

// Whoever closes the resources may rely on it that all is closed then, also beside another one.
func TestCloseBesideClose(t *testing.T) {
	r := New(Options{})
	began, end, closed := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	r.OnClose(func() error {
		close(began)
		<-end
		closed.Store(true)
		return nil
	})
	var all sync.WaitGroup
	all.Go(func() { _ = r.Close() })
	<-began
	all.Go(func() {
		_ = r.Close()
		assert.True(t, closed.Load())
	})
	time.Sleep(20 * time.Millisecond)
	close(end)
	all.Wait()
}

// What a job needs of elsewhere is asked for at once, and everything that is missing is told, in the order of the job.
func TestBegin(t *testing.T) {
	r := New(Options{})
	require.NoError(t, r.Begin(t.Context()))
	second := make(chan struct{})
	r.OnBegin(func(context.Context) error { <-second; return errors.New("one") })
	r.OnBegin(func(context.Context) error { close(second); return nil })
	r.OnBegin(func(context.Context) error { return errors.New("three") })
	require.EqualError(t, r.Begin(t.Context()), "one\nthree")
}

// What a worker printed last is written when the resources are closed, also without an end of line, and behind what its Close prints.
func TestLogEnds(t *testing.T) {
	var log strings.Builder
	r := New(Options{Log: &log})
	w := r.Log("tools.py")
	r.OnClose(func() error {
		_, err := w.Write([]byte("at the end"))
		return err
	})
	_, err := w.Write([]byte("one\ntwo: "))
	require.NoError(t, err)
	require.Equal(t, "tools.py: one\n", log.String())
	require.NoError(t, r.Close())
	require.Equal(t, "tools.py: one\ntools.py: two: at the end\n", log.String())
	require.NoError(t, r.Close())
	require.Equal(t, "tools.py: one\ntools.py: two: at the end\n", log.String())
}

// A parameter of the wrong type is named as a job writes it, also where its struct embeds the field.
func TestDecodeNamesTheParameter(t *testing.T) {
	type Limits struct {
		MaxSteps int `json:"max_steps"`
	}
	var p struct {
		Own struct{ Deep int } `json:"own"`
		Limits
	}
	require.EqualError(t, Decode(map[string]any{"max_steps": "many"}, &p), "the parameter max_steps must be of type int, got a string")
	require.EqualError(t, Decode(map[string]any{"own": map[string]any{"Deep": true}}, &p), "the parameter own.Deep must be of type int, got a bool")
}

// A job that is only looked at imports no Python file, and yet an interpreter that is not there is found.
func TestLookFindsAMissingInterpreter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := New(Options{Look: true})
	_, err := r.LoadPython(t.Context(), PythonFile{Python: file, Interpreter: "no-such-python"})
	require.ErrorContains(t, err, `the interpreter no-such-python is not found: exec: "no-such-python": executable file not found in $PATH`)
	require.Empty(t, r.NotRun())
	_, err = r.LoadPython(t.Context(), PythonFile{Python: file, Interpreter: "sh"})
	require.ErrorAs(t, err, new(*NotRunError))
}
