package vllm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a killed run of another user left in shared memory cannot be removed, and keeps nobody from using it.
func TestSharedMemoryOfAnotherUser(t *testing.T) {
	dead := exec.Command(os.Args[0], "-test.run", "^$")
	require.NoError(t, dead.Run())
	folder := t.TempDir() // of this test alone: other processes remove from /dev/shm what dead ones left
	require.NoError(t, os.Chmod(filepath.Dir(folder), 0o755))
	require.NoError(t, os.Chmod(folder, 0o777|os.ModeSticky))
	left := filepath.Join(folder, fmt.Sprintf("agentfly-shared-%d-%s-77", dead.Process.Pid, hostName()))
	require.NoError(t, os.MkdirAll(filepath.Join(left, "kept"), 0o755))
	require.NoError(t, os.Chmod(left, 0o555))
	defer func() {
		require.NoError(t, os.Chmod(left, 0o755))
		require.NoError(t, os.RemoveAll(left))
	}()
	if os.Geteuid() == 0 { // whom nothing is forbidden
		const nobody = 65534
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, syscall.Setfsuid(nobody)) // of this thread
		defer func() { require.NoError(t, syscall.Setfsuid(0)) }()
	}
	_, err := RemoveStale(folder, "shared")
	require.ErrorIs(t, err, os.ErrPermission)
	f, remove, err := sharedFile(folder)
	require.NoError(t, err)
	remove()
	require.NoError(t, f.Close())
}
