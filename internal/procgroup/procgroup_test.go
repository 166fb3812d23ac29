//go:build unix

package procgroup

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// orphans tells this test's program to start another, and to wait until it is killed.
const orphans = "SPAWN_TEST_ORPHANS"

func TestMain(m *testing.M) {
	if os.Getenv(orphans) == "" {
		os.Exit(m.Run())
	}
	c := exec.Command("sh", "-c", "echo up; exec sleep 1000")
	c.Stdout = os.Stdout
	if _, err := Start(c, syscall.SIGKILL); err != nil {
		os.Exit(1)
	}
	os.Stdout.Close()
	time.Sleep(1000 * time.Second)
}

// output gives the command a pipe for its output. The pipe ends when all that hold it are gone, and a read that waits much longer fails.
func output(t *testing.T, c *exec.Cmd) (read *bufio.Reader, started func()) {
	t.Helper()
	ours, theirs, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, ours.SetReadDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { ours.Close() })
	c.Stdout = theirs
	return bufio.NewReader(ours), func() { require.NoError(t, theirs.Close()) }
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	require.NoError(t, err)
	return text
}

// ended reads on until nobody holds the pipe any more.
func ended(t *testing.T, r io.Reader) {
	t.Helper()
	_, err := io.Copy(io.Discard, r)
	require.NoError(t, err)
}

// shell starts a script that says up, and reads that.
func shell(t *testing.T, script string) (*Group, *bufio.Reader) {
	t.Helper()
	c := exec.Command("sh", "-c", script)
	r, started := output(t, c)
	g, err := Start(c, syscall.SIGTERM)
	require.NoError(t, err)
	started()
	require.Equal(t, "up\n", line(t, r))
	return g, r
}

func TestWhatAProgramLeavesBehindEnds(t *testing.T) {
	g, r := shell(t, "sleep 1000 & echo up; exit 3")
	var exit *exec.ExitError
	require.ErrorAs(t, g.Wait(), &exit)
	require.Equal(t, 3, exit.ExitCode(), "it ended by itself")
	ended(t, r)
	require.NoError(t, g.Signal(syscall.SIGKILL), "to nobody")
}

func TestASignalReachesTheWholeGroup(t *testing.T) {
	g, r := shell(t, "sleep 1000 & echo up; wait")
	group, err := syscall.Getpgid(g.PID())
	require.NoError(t, err)
	require.Equal(t, g.PID(), group)
	require.NoError(t, g.Signal(syscall.SIGTERM))
	ended(t, r) // before Wait, which would kill what is left
	require.EqualError(t, g.Wait(), "signal: terminated")
}

func TestAProgramEndsWithThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process that its parent died")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), orphans+"=1")
	r, started := output(t, c)
	require.NoError(t, c.Start())
	started()
	require.Equal(t, "up\n", line(t, r))
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	ended(t, r)
}

func TestWhatCannotBeStarted(t *testing.T) {
	g, err := Start(exec.Command("/no/such/program"), syscall.SIGTERM)
	require.Nil(t, g)
	require.True(t, errors.Is(err, os.ErrNotExist), err)
}
