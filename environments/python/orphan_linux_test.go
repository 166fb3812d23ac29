package pyenv_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

// orphans tells this test's program to begin a step that keeps the interpreter's lock, and to wait until it is killed.
const orphans = "PYENV_TEST_ORPHANS"

func TestMain(m *testing.M) {
	if os.Getenv(orphans) == "" {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	s, err := pyenv.Kind().New(ctx, resources.New(resources.Options{}), map[string]any{"class": worlds + ":Native"})
	if err == nil {
		var e environments.Environment
		if e, err = s.New(ctx, "test"); err == nil {
			var o environments.Observation
			if o, err = e.Reset(ctx, environments.Start{}); err == nil {
				fmt.Println(o[0].Text)
				_, err = e.Step(ctx, environments.Action{Text: "go"})
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// running tells whether a process is there and is no zombie.
func running(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	var state string
	_, err = fmt.Sscanf(string(data[len(data)-len(afterName(data)):]), "%s", &state)
	return err == nil && state != "Z" && state != "X"
}

func afterName(stat []byte) []byte {
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return stat[i+1:]
		}
	}
	return nil
}

// A worker whose native code never gives the interpreter's lock back ends with the run that is killed, and so does what it started.
func TestKilledRunLeavesNothing(t *testing.T) {
	needPython(t)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), orphans+"=1")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var worker, child int
	_, err = fmt.Fscan(bufio.NewReader(out), &worker, &child)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(-worker, syscall.SIGKILL) })
	require.True(t, running(worker) && running(child))
	busy := func() bool { // the step has begun when the worker computes: its time passes half a second
		var user int
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", worker))
		require.NoError(t, err)
		var f [11]string
		_, err = fmt.Sscan(string(afterName(data)), &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8], &f[9], &f[10], &user)
		return err == nil && user > 100
	}
	require.Eventually(t, busy, time.Minute, 20*time.Millisecond)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	require.Eventually(t, func() bool { return !running(worker) && !running(child) }, 20*time.Second, 20*time.Millisecond)
}
