//go:build unix

package processes

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ranks that do not end are killed, all of them at one deadline.
func TestRanksThatDoNotEndAreKilled(t *testing.T) {
	r := &Group{}
	var all []*child
	for rank := range 3 {
		c := &child{rank: rank + 1, cmd: exec.Command("sleep", "600"), ended: make(chan struct{})}
		require.NoError(t, c.cmd.Start())
		go func() {
			defer close(c.ended)
			_ = c.cmd.Wait() // its state says more than the error
		}()
		all = append(all, c)
	}
	r.children = all
	require.NoError(t, r.Leave())
	for _, c := range all {
		status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		require.Equal(t, syscall.SIGKILL, status.Signal())
	}
}
