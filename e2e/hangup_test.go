//go:build linux

package e2e_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ended waits for a process, a minute at most.
func ended(t *testing.T, run *exec.Cmd) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run.Wait() // its state says more
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the process does not end")
		_ = run.Process.Signal(syscall.SIGQUIT) // it tells what it does
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = run.Process.Kill()
			<-done
		}
	}
}

// hearHangUps lets the processes of a test hear hang-ups also where the tests run under nohup: what is ignored is inherited, a handler is not.
func hearHangUps(t *testing.T) {
	t.Helper()
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
}

// A hang-up ends a command as SIGTERM does. A second one changes nothing: the kernel and the shell both send one when a terminal closes.
func TestHangUpStops(t *testing.T) {
	hearHangUps(t)
	run := process("tools", "serve", "--http", "127.0.0.1:0", "calculator")
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	var errs lines
	run.Stderr = &errs
	require.NoError(t, run.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, run.Process.Signal(syscall.SIGHUP))
	time.Sleep(time.Millisecond)           // of two that come at once the kernel makes one
	_ = run.Process.Signal(syscall.SIGHUP) // it may be gone already
	ended(t, run)
	require.Zero(t, run.ProcessState.ExitCode(), "%s: %s", run.ProcessState, errs.String())
}

// Under nohup a hang-up is nothing.
func TestHangUpUnderNohup(t *testing.T) {
	run := exec.Command("sh", "-c", `trap "" HUP; exec "$0" tools serve --http 127.0.0.1:0 calculator`, self())
	run.Env = append(os.Environ(), "AGENTFLY_TEST_BINARY=1")
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	var errs lines
	run.Stderr = &errs
	require.NoError(t, run.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(run.Process.Pid), "status"))
	if err == nil { // bit 0 of the ignored signals is SIGHUP
		require.Regexp(t, `SigIgn:\s+[0-9a-f]*[13579bdf]\n`, string(status), "the signal is still ignored")
	}
	require.NoError(t, run.Process.Signal(syscall.SIGHUP))
	require.NoError(t, run.Process.Signal(syscall.SIGTERM))
	ended(t, run)
	require.Zero(t, run.ProcessState.ExitCode(), errs.String())
}

// pseudoTerminal is a terminal of this process: what closes master hangs it up.
func pseudoTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo terminal can be opened: " + err.Error())
	}
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// A run whose terminal closes finishes its step and saves, though nobody reads what it says any more.
func TestARunSurvivesItsTerminal(t *testing.T) {
	needTorch(t)
	hearHangUps(t)
	master, slave := pseudoTerminal(t)
	dir := filepath.Join(t.TempDir(), "run")
	run := process("train", "examples/tiny.yaml", "--output", dir)
	run.Stdin, run.Stdout, run.Stderr = slave, slave, slave
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, run.Start())
	require.NoError(t, slave.Close())
	lines := bufio.NewScanner(master)
	for lines.Scan() && !strings.Contains(lines.Text(), "step   2/") { // the sequences of the table stand before it
	}
	require.NoError(t, master.Close())
	for range 5 { // a shell tells its jobs, too
		_ = run.Process.Signal(syscall.SIGHUP)
		time.Sleep(5 * time.Millisecond)
	}
	ended(t, run)
	require.Equal(t, 3, run.ProcessState.ExitCode(), run.ProcessState)
	require.FileExists(t, filepath.Join(dir, "checkpoints", "last", "run.json"))
}

// A run whose reader is gone goes on, and can still be interrupted: Ctrl-C in `agentfly train JOB | tee log` reaches tee too, which ends
// first, and the next line that the run says would end it with nothing saved.
func TestARunSurvivesItsPipe(t *testing.T) {
	needTorch(t)
	dir := filepath.Join(t.TempDir(), "run")
	run := process("train", "examples/tiny.yaml", "--output", dir)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	run.Stdout, run.Stderr = writer, writer
	require.NoError(t, run.Start())
	require.NoError(t, writer.Close())
	lines := bufio.NewScanner(reader)
	for lines.Scan() && !strings.Contains(lines.Text(), "step   2/") {
	}
	require.NoError(t, reader.Close())
	require.NoError(t, run.Process.Signal(syscall.SIGINT))
	ended(t, run)
	require.Equal(t, 3, run.ProcessState.ExitCode(), run.ProcessState)
	require.FileExists(t, filepath.Join(dir, "checkpoints", "last", "run.json"))
}

// On a terminal the command asks before it runs anything, and shows all of what it would run.
func TestValidateAsks(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for answer, runs := range map[string]bool{"\n": false, "n\n": false, "y\n": true} {
		master, slave := pseudoTerminal(t)
		long := strings.Repeat("true; ", 50) // after which nobody would look
		run := process("job", "validate", "--set", `agent.tools=[{mcp: {command: [sh, -c, "`+long+`touch `+marker+`"]}}]`, "examples/tiny.yaml")
		run.Stdin, run.Stdout, run.Stderr = slave, slave, slave
		run.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, run.Start())
		require.NoError(t, slave.Close())
		shown, buffer := "", make([]byte, 4096)
		for !strings.HasSuffix(shown, "run it? [y/N] ") {
			n, err := master.Read(buffer)
			require.NoError(t, err, shown)
			shown += string(buffer[:n])
		}
		require.Contains(t, shown, "touch "+marker)
		require.NoFileExists(t, marker)
		_, err := master.WriteString(answer)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, master) }() // ends with the terminal
		ended(t, run)
		if runs {
			require.FileExists(t, marker)
		} else {
			require.NoFileExists(t, marker)
			require.Zero(t, run.ProcessState.ExitCode())
		}
		_ = os.Remove(marker)
	}
}

// JSON on a terminal has the same values, and nothing that the terminal acts on.
func TestJSONOnATerminal(t *testing.T) {
	needPython(t)
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\n\n@tool()\ndef f() -> str:\n    \"Returns.\"\n    return '\\x9b2J\\u202e\\x7f\\x1b[2J'\n"), 0o600))
	master, slave := pseudoTerminal(t)
	run := process("tools", "call", "--runtime", "cpython", file, "f", "{}")
	run.Stdin, run.Stdout, run.Stderr = slave, slave, slave
	require.NoError(t, run.Start())
	line, err := bufio.NewReader(master).ReadString('\n')
	require.NoError(t, err)
	ended(t, run)
	require.Equal(t, `{"observation":"\u009b2J\u202e\u007f\u001b[2J"}`, strings.TrimSpace(line))
	var piped strings.Builder
	run = process("tools", "call", "--runtime", "cpython", file, "f", "{}")
	run.Stdout = &piped
	require.NoError(t, run.Run())
	require.Equal(t, "{\"observation\":\"\u009b2J\u202e\x7f\\u001b[2J\"}\n", piped.String(), "programs get it as it always was")
}
