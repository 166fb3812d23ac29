package mcp

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.call(ctx, "env", json.RawMessage(`{"text":"`+strings.Repeat("x", 1<<20)+`"}`))
		assert.Error(t, err)
	})
	pipe, err := s.current.process.in.SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the pipe is full
		held := 0
		assert.NoError(t, pipe.Control(func(fd uintptr) { held, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
		return assert.NoError(t, err) && held >= 1<<16
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
