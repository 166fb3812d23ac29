package mcp

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A server that is stopped reads nothing: calls that are larger than the pipe end at their deadline, and it is started again.
func TestAServerThatDoesNotRead(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	pid, err := strconv.Atoi(ask(t, s, "pid", ""))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.call(ctx, "env", json.RawMessage(`{"text":"`+strings.Repeat("x", 1<<20)+`"}`))
		assert.Error(t, err)
	})
	pipe, err := s.current.process.in.SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the pipe takes no more, however many bytes that are: messages before this one may have begun a page
		writable := 1
		assert.NoError(t, pipe.Control(func(fd uintptr) { writable, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) }))
		return assert.NoError(t, err) && writable == 0
	}, 20*time.Second, time.Millisecond)
	for i := range 20 { // they wait for the pipe, and then for the next start
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 20 * time.Millisecond)
			o, err := s.call(t.Context(), "add", json.RawMessage(`{"a":1,"b":2}`))
			if assert.NoError(t, err) {
				assert.Equal(t, "3", o.Text)
			}
		})
	}
	wg.Wait()
	require.False(t, alive(strconv.Itoa(pid)))
}

// A call of which a server got nothing, because it closed its input, was not begun: it may be made again. One that it has was.
func TestACallOfWhichNothingIsWritten(t *testing.T) {
	theirs, ours, err := os.Pipe()
	require.NoError(t, err)
	defer ours.Close()
	out, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer out.Close()
	s := newStdio(&process{in: ours, out: out})
	ctx, sent := withBegun(t.Context())
	require.NoError(t, s.Write(ctx, &jsonrpc.Request{Method: "tools/call"}))
	require.True(t, sent.Load())
	require.NoError(t, theirs.Close())
	ctx, sent = withBegun(t.Context())
	require.ErrorIs(t, s.Write(ctx, &jsonrpc.Request{Method: "tools/call"}), syscall.EPIPE)
	require.False(t, sent.Load())
}
