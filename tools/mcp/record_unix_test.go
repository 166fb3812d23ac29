//go:build unix

package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

type echoing struct{}

func (echoing) call(_ context.Context, _ string, arguments json.RawMessage) (tools.Observation, error) {
	return tools.Observation{Text: string(arguments)}, nil
}

// A call that the disk has no room for is told at once and is missing, whole; those before and behind it are replayed.
func TestRecordOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	var told []string
	r, err := newRecorder(path, echoing{}, []offer{{Name: "a", Parameters: json.RawMessage(`{}`)}}, func(text string) { told = append(told, text) })
	require.NoError(t, err)
	call := func(n int) {
		t.Helper()
		_, err := r.call(t.Context(), "a", json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))
		require.NoError(t, err)
	}
	call(1)
	info, err := os.Stat(path)
	require.NoError(t, err)
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	full := was
	full.Cur = uint64(info.Size()) + 30 // bytes: half a line
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	call(2)
	call(3)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.Equal(t, []string{"the recording r.jsonl lacks calls: write " + path + ": file too large"}, told)
	call(4)
	require.ErrorContains(t, r.Close(), "mcp: record: write")

	from, _, err := readRecording(path)
	require.NoError(t, err)
	for n := 1; n <= 4; n++ {
		arguments := fmt.Sprintf(`{"n":%d}`, n)
		got, err := from.call(t.Context(), "a", json.RawMessage(arguments))
		if n == 2 || n == 3 {
			require.ErrorContains(t, err, "the recording has no call of a")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, arguments, got.Text)
	}
}
