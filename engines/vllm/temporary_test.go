package vllm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only what dead processes of this machine left goes.
func TestRemoveStale(t *testing.T) {
	dead := exec.Command(os.Args[0], "-test.run", "^$")
	require.NoError(t, dead.Run())
	folder := t.TempDir()
	mine, err := os.MkdirTemp(folder, TempPattern("weights"))
	require.NoError(t, err)
	gone := fmt.Sprintf("agentfly-weights-%d-%s-12", dead.Process.Pid, hostName())
	keep := []string{
		filepath.Base(mine),
		fmt.Sprintf("agentfly-weights-%d-elsewhere-12", dead.Process.Pid), // another machine's
		fmt.Sprintf("agentfly-weights-%d-%s-2-12", dead.Process.Pid, hostName()),
		fmt.Sprintf("agentfly-weights-%d-%s-2", dead.Process.Pid, hostName()+"-x"),
		fmt.Sprintf("agentfly-weights-%d-%s-mine", dead.Process.Pid, hostName()), // no such pattern's
		fmt.Sprintf("agentfly-other-%d-%s-12", dead.Process.Pid, hostName()),
		fmt.Sprintf("agentfly-weights-1-%s-12", hostName()), // init lives
		"agentfly-weights-", "agentfly-weights-x-" + hostName(), "agentfly-weights-0-" + hostName() + "-1", "mine",
	}
	for _, name := range append(keep[1:], gone) {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name, "model.safetensors"), nil, 0o644))
	}
	removed, err := RemoveStale(folder, "weights")
	require.NoError(t, err)
	require.Equal(t, []string{gone}, removed)
	for _, name := range keep {
		require.DirExists(t, filepath.Join(folder, name))
	}
	require.NoDirExists(t, filepath.Join(folder, gone))
	_, err = RemoveStale(filepath.Join(folder, "none"), "weights")
	require.Error(t, err)
}
