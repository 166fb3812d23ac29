package python

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python/protocol"
)

// scripted is a process that reads when the test does.
type scripted struct{ in *os.File }

func (p scripted) Stdin() io.WriteCloser { return p.in }
func (scripted) Stdout() io.Reader       { return strings.NewReader("") }
func (scripted) Stderr() io.Reader       { return strings.NewReader("") }
func (scripted) Wait() error             { return nil }
func (scripted) Kill() error             { return nil }

// A worker that ends between its answer that it loaded the file and its place in the pool takes no place.
func TestAWorkerThatEndsBeforeItHasAPlace(t *testing.T) {
	p := newPool(launch{}, protocol.Request{}, Options{Workers: 1})
	defer p.close()
	w := &worker{process: scripted{}}
	p.starting++
	p.remove(w)
	p.started(w)
	require.Empty(t, p.workers)
	require.Zero(t, p.starting)
}

// Who asks does not wait for a worker that does not read, and the worker reads every line once and in order: those that its pipe took at once, those
// that waited, and those that are too long to be written at once.
func TestLinesOfAWorkerThatDoesNotRead(t *testing.T) {
	theirs, ours, err := os.Pipe()
	require.NoError(t, err)
	raw, err := ours.SyscallConn()
	require.NoError(t, err)
	w := &worker{process: scripted{ours}, pipe: raw, more: make(chan struct{}, 1)}
	dead, ended := make(chan struct{}), make(chan struct{})
	go func() {
		w.send(dead)
		close(ended)
	}()
	const n = 2000
	line := func(i int) string {
		return fmt.Sprintf(`{"id":%d,"pad":"%s"}`, i, strings.Repeat("x", i*i%900))
	}
	for i := range n { // nobody reads yet: to wait for the pipe would be for ever
		w.write([]byte(line(i)))
	}
	w.mu.Lock()
	require.NotEmpty(t, w.out, "the pipe took it all: the test shows nothing")
	w.mu.Unlock()
	lines := bufio.NewScanner(theirs)
	for i := range n {
		require.True(t, lines.Scan())
		require.Equal(t, line(i), lines.Text())
		if i > n/2 && i%7 == 0 { // while it reads, too
			w.write([]byte("more"))
		}
	}
	close(dead)
	<-ended
	require.NoError(t, ours.Close())
	for lines.Scan() {
		require.Equal(t, "more", lines.Text())
	}
	require.NoError(t, lines.Err())
	require.NoError(t, theirs.Close())
	require.False(t, writeNow(raw, []byte("late\n")), "a pipe that is closed takes nothing")
}
