package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/python/gpython"
)

func TestMain(m *testing.M) {
	gpython.Main(os.Args) // the test binary is the worker of runtime gpython
	goleak.VerifyTestMain(m)
}

// load loads a file of the given text and closes it with the test.
func load(t *testing.T, o python.Options, text string) *python.Module {
	t.Helper()
	needPython(t)
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	m, err := python.Load(t.Context(), file, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func call(ctx context.Context, m *python.Module, name, trajectory, arguments string) (string, error) {
	r, err := m.Call(ctx, name, trajectory, json.RawMessage(arguments))
	return string(r), err
}

func TestACrashFailsOnlyItsCall(t *testing.T) {
	m := load(t, python.Options{Workers: 2}, `
import ctypes, os, sys
from agentfly import tool

@tool()
def ok(n: int):
    return n

@tool()
def leaves():
    sys.stderr.write("about to leave\n")
    os._exit(7)

@tool()
def segfault():
    ctypes.string_at(0)

@tool()
def killed():
    os.kill(os.getpid(), 9)

@tool()
def exits():
    sys.exit(3)
`)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			got, err := call(t.Context(), m, "ok", "", fmt.Sprintf(`{"n": %d}`, i))
			if err == nil && got != strconv.Itoa(i) {
				t.Errorf("ok(%d) = %s", i, got)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	for name, how := range map[string]string{"leaves": "exit status 7", "segfault": "segmentation fault", "killed": "killed"} {
		all.Go(func() {
			_, err := call(t.Context(), m, name, "", `{}`)
			var broken *python.BrokenError
			if !errors.As(err, &broken) {
				t.Errorf("%s: %v", name, err)
				return
			}
			if broken.Text != name+" broke: its process ended" || !strings.Contains(broken.Detail, how) {
				t.Errorf("%s: %q, %q", name, broken.Text, broken.Detail)
			}
			if name == "leaves" && !strings.Contains(broken.Detail, "about to leave") {
				t.Errorf("the last that it wrote is missing: %q", broken.Detail)
			}
		})
	}
	all.Go(func() {
		_, err := call(t.Context(), m, "exits", "", `{}`)
		var raised *python.Error
		if !errors.As(err, &raised) || raised.Text != "SystemExit: 3" {
			t.Errorf("exits: %v", err)
		}
	})
	all.Wait()
}

// hanging waits in Python, in C that lets signals in, and in C that does not.
const hanging = `
import re, threading, time
from agentfly import state, tool

@tool(timeout=0.3)
def loops():
    while True:
        pass

@tool(timeout=0.3)
def sleeps():
    time.sleep(3600)

@tool(timeout=0.3)
def stubborn():
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass

@tool(timeout=0.3)
def deaf():
    re.match("(a+)+$", "a" * 60 + "b")

@tool(timeout=0.3, stateful=True)
def stuck():
    while True:
        pass

@tool(timeout=0.3, stateful=True)
def deaf_state():
    state()["n"] = 1
    re.match("(a+)+$", "a" * 60 + "b")

@tool(stateful=True)
def count():
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@tool()
def thread():
    return threading.current_thread() is threading.main_thread()
`

func TestAHangEndsAtItsDeadline(t *testing.T) {
	m := load(t, python.Options{Workers: 2}, hanging)
	for _, name := range []string{"loops", "sleeps", "stubborn", "deaf"} {
		_, err := call(t.Context(), m, name, "", `{}`)
		var broken *python.BrokenError
		require.ErrorAs(t, err, &broken)
		require.Equal(t, name+" took longer than 300ms; ask it for less work", broken.Text)
	}
	got, err := call(t.Context(), m, "thread", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, "true", got)

	// The deadline of ctx goes before the function's own.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = call(ctx, m, "loops", "", `{}`)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestStateSurvivesAHangAndItsLossIsSaid(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, hanging)
	one := func(name, trajectory string) string {
		got, err := call(t.Context(), m, name, trajectory, `{}`)
		if err != nil {
			return err.Error()
		}
		return got
	}
	require.Equal(t, "1", one("count", "a"))
	require.Equal(t, "1", one("count", "b"))
	require.Equal(t, "stuck took longer than 300ms; ask it for less work", one("stuck", "b"))
	require.Equal(t, "2", one("count", "a"), "a loop in Python is interrupted, and its neighbours keep their state")

	require.Equal(t, "deaf_state took longer than 300ms; ask it for less work", one("deaf_state", "b"))
	require.Equal(t, "count broke: what it kept of this trajectory is lost, and begins anew", one("count", "a"), "the worker had to be killed")
	require.Equal(t, "1", one("count", "a"))
	m.End("a")
	require.Equal(t, "1", one("count", "a"))
}

func TestMemoryIsLimited(t *testing.T) {
	m := load(t, python.Options{Workers: 1, Memory: 512 << 20}, `
from agentfly import tool

@tool()
def grow(mib: int):
    return len(bytearray(mib << 20)) >> 20
`)
	got, err := call(t.Context(), m, "grow", "", `{"mib": 100}`)
	require.NoError(t, err)
	require.Equal(t, "100", got)
	_, err = call(t.Context(), m, "grow", "", `{"mib": 2000}`)
	var broken *python.BrokenError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "grow broke: it needs more memory than its limit of 512 MiB", broken.Text)
	got, err = call(t.Context(), m, "grow", "", `{"mib": 100}`)
	require.NoError(t, err)
	require.Equal(t, "100", got)
}

func TestAsyncCallsRunTogetherInOneWorker(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
import asyncio
from agentfly import tool

arrived = 0
everyone = None

@tool()
async def meet(n: int):
    """Returns when n calls are here at once."""
    global arrived, everyone
    if everyone is None:
        everyone = asyncio.Event()
    arrived += 1
    if arrived == n:
        everyone.set()
    await everyone.wait()
    return arrived

@tool(timeout=0.2)
async def forever():
    await asyncio.sleep(3600)

@tool()
def plain():
    return "plain"
`)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, err := call(t.Context(), m, "meet", "", `{"n": 51}`); err != nil || got != "51" {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	got, err := call(t.Context(), m, "plain", "", `{}`)
	require.NoError(t, err, "a plain call runs beside them")
	require.Equal(t, `"plain"`, got)
	_, err = call(t.Context(), m, "forever", "", `{}`)
	var broken *python.BrokenError
	require.ErrorAs(t, err, &broken, "one that hangs is cancelled, the others go on")
	got, err = call(t.Context(), m, "meet", "", `{"n": 51}`)
	require.NoError(t, err)
	require.Equal(t, "51", got)
	all.Wait()
}

func TestWhatAWorkerStartedEndsWithIt(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
import os, subprocess, time
from agentfly import tool

@tool()
def child():
    return subprocess.Popen(["sleep", "3600"]).pid

@tool()
def fork_and_crash():
    pid = os.fork()
    if pid == 0:
        time.sleep(3600)
    os._exit(1)
`)
	got, err := call(t.Context(), m, "child", "", `{}`)
	require.NoError(t, err)
	pid, err := strconv.Atoi(got)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0), "it runs")
	_, err = call(t.Context(), m, "fork_and_crash", "", `{}`)
	require.Error(t, err)
	require.NoError(t, m.Close())
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, 10*time.Millisecond)
}

// gone tells whether a process is dead: nobody may have waited for it.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// 2,000 calls of which 1% crash and 1% hang: every one has its own end, and nothing is left.
func TestTwoThousandCalls(t *testing.T) {
	m := load(t, python.Options{Workers: 4}, `
import os
from agentfly import tool

@tool()
def work(n: int):
    if n % 100 == 13:
        os._exit(1)
    while n % 100 == 57:
        pass
    return n
`)
	before := openFiles(t)
	const calls, atOnce = 2000, 64
	outcomes := make([]string, calls)
	var all sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range calls {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if i%100 == 57 {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second) // with the time that it waits for a worker
			}
			defer cancel()
			got, err := call(ctx, m, "work", strconv.Itoa(i), fmt.Sprintf(`{"n": %d}`, i))
			var broken *python.BrokenError
			switch {
			case err == nil:
				outcomes[i] = got
			case errors.As(err, &broken):
				outcomes[i] = "crash"
			case errors.Is(err, context.DeadlineExceeded):
				outcomes[i] = "hang"
			default:
				outcomes[i] = err.Error()
			}
		})
	}
	all.Wait()
	for i, got := range outcomes {
		want := strconv.Itoa(i)
		switch i % 100 {
		case 13:
			want = "crash"
		case 57:
			want = "hang"
		}
		require.Equal(t, want, got, "call %d", i)
	}
	require.NoError(t, m.Close())
	require.Eventually(t, func() bool { return openFiles(t) <= before }, 10*time.Second, 10*time.Millisecond)
	require.Empty(t, children(t), "no process is left")
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(entries)
}

// children are the processes that this one started and that live.
func children(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err == nil {
			out = append(out, strings.Fields(string(data))...)
		}
	}
	return out
}

func TestCloseEndsCallsThatRun(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, hanging)
	errs := make(chan error, 3)
	for range 3 { // one runs, two wait
		go func() {
			_, err := call(context.WithoutCancel(t.Context()), m, "sleeps", "", `{}`)
			errs <- err
		}()
	}
	require.NoError(t, m.Close())
	for range 3 {
		require.Error(t, <-errs)
	}
	_, err := call(t.Context(), m, "thread", "", `{}`)
	require.ErrorContains(t, err, "closed")
	require.NoError(t, m.Close())
}

func TestAFileThatHangsOrCrashesAtItsImport(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	late, cancel := context.WithTimeout(t.Context(), time.Microsecond)
	defer cancel()
	_, err := python.Load(late, write("none.py", ""), python.Options{})
	require.EqualError(t, err, "python: the interpreter python3 did not say in time where it lies: context deadline exceeded")
	require.NoError(t, os.Remove(filepath.Join(dir, "none.py")))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // an interpreter begins within it on a busy machine
	defer cancel()
	_, err = python.Load(ctx, write("hang.py", "while True: pass\n"), python.Options{})
	require.ErrorContains(t, err, "it took too long to load the file")
	_, err = python.Load(t.Context(), write("crash.py", "import os\nos.write(2, b'bye')\nos._exit(4)\n"), python.Options{})
	require.ErrorContains(t, err, "exit status 4")
	require.ErrorContains(t, err, "bye")
	_, err = python.Load(t.Context(), filepath.Join(dir, "none.py"), python.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = python.Load(t.Context(), write("x.py", ""), python.Options{Runtime: "jython"})
	require.ErrorContains(t, err, `there is no runtime "jython"; allowed: auto, cpython, gpython`)
	_, err = python.Load(t.Context(), write("x.py", ""), python.Options{Interpreter: "/nowhere/python"})
	require.ErrorContains(t, err, "the interpreter /nowhere/python does not run")
}

// A file that loaded once, and no longer does when a worker is replaced: the calls that need a worker fail at once and say why, and when it loads again
// they run.
func TestAReplacementThatCannotLoadTheFile(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "broken")
	m := load(t, python.Options{Workers: 1}, fmt.Sprintf(`
import os
from agentfly import tool

if os.path.exists(%q):
    import no_such_module_7

@tool()
def leaves():
    os._exit(7)

@tool()
def ok():
    return "ok"
`, marker))
	require.NoError(t, os.WriteFile(marker, nil, 0o600))
	_, err := call(t.Context(), m, "leaves", "", `{}`)
	require.ErrorContains(t, err, "leaves broke: its process ended")
	for range 2 {
		_, err = call(t.Context(), m, "ok", "", `{}`)
		var broken *python.BrokenError
		require.ErrorAs(t, err, &broken)
		require.Equal(t, "ok broke: its process could not load the file", broken.Text)
		require.Regexp(t, `/tools\.py:6: .*no_such_module_7`, broken.Detail)
	}
	require.NoError(t, os.Remove(marker))
	got, err := call(t.Context(), m, "ok", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, `"ok"`, got)
}

func TestAWorkerThatBreaksTheProtocolIsReplaced(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
import os
from agentfly import tool

@tool()
def floods():
    for fd in range(3, 20):  # one of them is the protocol's
        try:
            os.write(fd, b"this is no reply\n")
        except OSError:
            pass
    return "done"

@tool()
def ok():
    return "ok"
`)
	_, err := call(t.Context(), m, "floods", "", `{}`)
	var broken *python.BrokenError
	require.ErrorAs(t, err, &broken)
	require.Contains(t, broken.Detail, "it wrote what is no reply")
	got, err := call(t.Context(), m, "ok", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, `"ok"`, got)
}

func TestLargeArgumentsAndResults(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
from agentfly import tool

@tool()
def twice(text: str):
    return text + text
`)
	text := strings.Repeat("ü\x01\n", 1<<20)
	arguments, err := json.Marshal(map[string]string{"text": text})
	require.NoError(t, err)
	result, err := m.Call(t.Context(), "twice", "", arguments)
	require.Error(t, err, "that is more than 16 MiB as JSON")
	require.ErrorContains(t, err, "the most is 16 MiB")
	require.Nil(t, result)
	arguments, err = json.Marshal(map[string]string{"text": text[:3<<18]})
	require.NoError(t, err)
	result, err = m.Call(t.Context(), "twice", "", arguments)
	require.NoError(t, err)
	var got string
	require.NoError(t, json.Unmarshal(result, &got))
	require.True(t, got == text[:3<<18]+text[:3<<18])
}

// What Python's JSON cannot read is the fault of one call: an integer of 5,000 digits, a list 3,000 deep, bytes that are no UTF-8. The
// worker goes on, with the state that it has, and others' calls with it.
func TestArgumentsThatPythonCannotRead(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
import sys
from agentfly import state, tool

getattr(sys, "set_int_max_str_digits", lambda n: None)(4300)  # what Python has done since 3.11

@tool(stateful=True)
def count(x=None):
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@tool()
async def waits(x=None):
    return 1
`)
	got, err := call(t.Context(), m, "count", "t", `{}`)
	require.NoError(t, err)
	require.Equal(t, "1", got)
	unreadable := map[string]string{
		`{"x": ` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`: "RecursionError",
		"{\"x\": \"\xff\"}": "UnicodeDecodeError",
	}
	if version := exec.Command("python3", "-c", "import sys; sys.exit(not hasattr(sys, 'set_int_max_str_digits'))"); version.Run() == nil {
		unreadable[`{"x": `+strings.Repeat("7", 5000)+`}`] = "ValueError"
	}
	for arguments, kind := range unreadable {
		for _, name := range []string{"count", "waits"} {
			_, err := call(t.Context(), m, name, "t", arguments)
			var raised *python.Error
			require.ErrorAs(t, err, &raised, kind)
			require.Regexp(t, `^the arguments cannot be read \(`+kind+`: .*\); write shorter numbers and nest less$`, raised.Text)
		}
	}
	got, err = call(t.Context(), m, "count", "t", `{}`)
	require.NoError(t, err)
	require.Equal(t, "2", got)
}

// A child process that the function made and that returns from it, too, is no worker: it does not answer, and does not stay.
func TestAChildThatReturns(t *testing.T) {
	m := load(t, python.Options{Workers: 1}, `
import os
from agentfly import tool

@tool()
def forks():
    child = os.fork()
    if child:
        os.waitpid(child, 0)  # it would wait for ever for a child that becomes a worker
        return "parent"
    return "child"
`)
	for range 3 {
		got, err := call(t.Context(), m, "forks", "", `{}`)
		require.NoError(t, err)
		require.Equal(t, `"parent"`, got)
	}
}
