package mcp

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/procgroup"
)

// What a server started ends at the next start, where agentfly was killed: also what left the server's process group.
func TestWhatAServerLeavesIsCollected(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "MCP_TEST_SERVER=owner")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pids := strings.Fields(line)
	require.Len(t, pids, 2)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	require.True(t, slices.ContainsFunc(pids, alive))
	procgroup.Collect()
	requireGone(t, pids)
}
