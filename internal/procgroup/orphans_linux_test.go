package procgroup

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What bears a variable ends, also what left its group; the process that looks for it and its ancestors are spared, though they bear it too, because a
// program that has the variable started them.
func TestBearersButForAncestors(t *testing.T) {
	const name = "AGENTFLY_TEST_BEARER"
	if os.Getenv(name) != "" { // the one that looks: a shell that bears the variable started it
		CollectBearers(name, os.Getenv(name))
		os.Stdout.WriteString("spared\n")
		return
	}
	value := t.Name() + time.Now().String()
	c := exec.Command("sh", "-c", `sleep 1000 & setsid sleep 1000 & "$0" -test.run '^TestBearersButForAncestors$' && echo shell lives; wait; echo none left`, os.Args[0])
	c.Env = append(os.Environ(), name+"="+value)
	ours, theirs, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, ours.SetReadDeadline(time.Now().Add(time.Minute)))
	c.Stdout = theirs
	require.NoError(t, c.Start())
	require.NoError(t, theirs.Close())
	said, err := io.ReadAll(bufio.NewReader(ours))
	require.NoError(t, err, "somebody holds the pipe still: %s", said)
	require.NoError(t, c.Wait())
	for _, want := range []string{"spared", "shell lives", "none left"} {
		require.True(t, strings.Contains(string(said), want), "%s", said)
	}
}
