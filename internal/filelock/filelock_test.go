//go:build unix

package filelock_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/filelock"
)

func TestOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := filelock.Wait(t.Context(), path, "another test")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	_, err = filelock.Wait(short, path, "another test")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "waiting for another test ("+path+")")
	got := make(chan error)
	go func() {
		again, err := filelock.Wait(t.Context(), path, "another test")
		if err == nil {
			again()
		}
		got <- err
	}()
	select {
	case <-got:
		t.Fatal("two hold the lock")
	case <-time.After(120 * time.Millisecond):
	}
	unlock()
	require.NoError(t, <-got)
	_, err = filelock.Wait(t.Context(), filepath.Join(path, "y"), "another test")
	require.Error(t, err)
	require.FileExists(t, path)
	require.NoError(t, os.Remove(path))
}
