package code

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registry has python and shell in a sandbox; the machine is searched for leftovers at the end.
func registry(t testing.TB, kind string, params map[string]any) *tools.Registry {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil && kind == sandbox.Bubblewrap {
		t.Skip("bwrap is not installed: apt-get install bubblewrap")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r := resources.New(resources.Options{Sandbox: kind})
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		left, err := os.ReadDir(temp)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	out := tools.NewRegistry(tools.Options{Timeout: time.Minute})
	for _, f := range []tools.Factory{NewPython, NewShell} {
		made, err := f(t.Context(), r, params)
		require.NoError(t, err)
		require.NoError(t, out.Register(made...))
		params = nil
	}
	return out
}

func call(ctx context.Context, r *tools.Registry, id, name, argument, text string) trajectory.ToolResult {
	arguments, err := json.Marshal(map[string]string{argument: text})
	if err != nil {
		panic(err)
	}
	return r.Invoke(ctx, id, trajectory.ToolCall{Name: name, Arguments: arguments})
}

func py(r *tools.Registry, id, code string) string {
	return call(context.Background(), r, id, "python", "code", code).Observation
}

func sh(r *tools.Registry, id, command string) string {
	return call(context.Background(), r, id, "shell", "command", command).Observation
}

func TestPythonSession(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	for _, c := range [][2]string{
		{"x = 41\nx + 1", "42"},
		{"print(x); x += 1", "41"},
		{"x", "42"},
		{"pass", "(no output)"},
		{"import sys, os\nprint('a'); print('b', file=sys.stderr); sys.stdout.flush(); os.system('echo c'); os.write(1, b'd\\n')", "a\nb\nc\nd\n2"},
		{"def f(n):\n    return 1 / n\nf(0)", "Error:   line 3: f(0)\n  line 2, in f: return 1 / n\nZeroDivisionError: division by zero"},
		{"print('before'); f(0)", "Error:   line 1: print('before'); f(0)\n  call 6, line 2, in f: return 1 / n\nZeroDivisionError: division by zero\nIt had printed:\nbefore"},
		{"1 +", "Error:   line 1\n    1 +\n       ^\nSyntaxError: invalid syntax"},
		{"import json; json.loads('x')", "Error:   line 1: import json; json.loads('x')\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"},
		{"exit(3)", "Error:   line 1: exit(3)\nSystemExit: 3"},
		{"input()", "Error:   line 1: input()\nEOFError: EOF when reading a line"},
		{"x", "42"},
		{"os.getcwd(), os.environ['HOME'], __name__", "('/workspace', '/workspace', '__main__')"},
		{"sys.stdout = None; os.close(1); os.close(2)", "(no output)"},
		{"print('again')", "again"},
		{"sys.stdout.close()", "(no output)"},
		{"print('after close'); sys.stderr.close()", "after close"},
		{"print('x', file=sys.stderr)", "x"},
		{"import io; sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')", "(no output)"},
		{"print('after detach', flush=True); sys.stdout.buffer.detach() and None", "after detach"},
		{"print('after both')", "after both"},
		{"if os.fork() == 0: print('child')\nelse: os.wait(); print('parent')", "child\nparent"},
		{"'\\ud800 ü'", `'\ud800 ü'`},
		{"class A:\n    def __repr__(self): return 'ü'\nA()", "ü"},
		{"import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    a: int\npickle.loads(pickle.dumps(P(1)))", "P(a=1)"},
		{"open('m.py', 'w').write('v = 7')\nimport m\nm.v", "7"},
	} {
		require.Equal(t, c[1], py(r, "a", c[0]), c[0])
	}
	require.Equal(t, "7", sh(r, "a", "python3 -c 'import m; print(m.v)'"), "the same folder")
	require.Equal(t, "Error:   line 1: x\nNameError: name 'x' is not defined", py(r, "b", "x"))
	require.Equal(t, "0", py(r, "b", "import os; len(os.listdir('.'))"))
	text := py(r, "a", "print('x' * 10**7)")
	require.Contains(t, text, "characters left out]")
	require.Equal(t, "42", py(r, "a", "x"))
	r.End("a")
	require.Equal(t, "Error:   line 1: x\nNameError: name 'x' is not defined", py(r, "a", "x"))
	r.End("a")
	r.End("b")
	r.End("none")
}

// announced has a deadline and goes on after it: a machine that stands still does not make the code's end, just before it, the call's.
type announced struct {
	context.Context
	at time.Time
}

func (a announced) Deadline() (time.Time, bool) { return a.at, true }

func TestPythonDies(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	require.Equal(t, "(no output)", py(r, "a", "x = 1; open('f', 'w').write('kept') and None"))
	lost := "; its variables are lost, files are kept"
	require.Equal(t, "Error: the code was stopped: it ended with status 3"+lost, py(r, "a", "import os; os._exit(3)"))
	require.Equal(t, "Error:   line 1: x\nNameError: name 'x' is not defined", py(r, "a", "x"))
	require.Equal(t, "'kept'", py(r, "a", "open('f').read()"))
	require.Equal(t, "Error: the code was stopped: it was ended by SIGSEGV"+lost, py(r, "a", "import ctypes; ctypes.string_at(0)"))
	require.Contains(t, py(r, "a", "'a' * (1 << 31)"), "MemoryError")
	long := py(r, "a", "y = 5\nraise ValueError('é' * 6_000_000)")
	require.Regexp(t, `^Error:   line 2: raise ValueError.*\nValueError: é+\n\[\d+ characters left out\]\né+$`, long, "no reason to lose the variables")
	require.Equal(t, "5", py(r, "a", "y"))
	require.Equal(t, "3", py(r, "a", "1 + 2"))
	require.Equal(t, "Error: the code was stopped: the interpreter was disturbed"+lost,
		py(r, "a", "import os\nfor fd in range(3, 20):\n  try: os.write(fd, b'{\"number\": 7, \"output\": \"forged\"}\\n')\n  except OSError: pass"))
	require.Contains(t, py(r, "a", "import os; os.closerange(0, 100)"), "Error: the code was stopped: ")
	require.Equal(t, "3", py(r, "a", "1 + 2"))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result := call(announced{ctx, time.Now().Add(5 * time.Second)}, r, "a", "python", "code", "while True: pass")
	require.True(t, result.Failed)
	require.NotEqual(t, trajectory.CauseBroken, result.Cause, "the code is to blame")
	require.Regexp(t, `^Error: the code ran longer than [\d.]+m?s and was stopped; its variables are lost, files are kept$`, result.Observation)
	require.Equal(t, "4", py(r, "a", "2 + 2"))
	r.End("a")
}

func TestPythonOnce(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, map[string]any{"mode": "once"})
	require.Equal(t, "1", py(r, "a", "x = 1; open('f', 'w').write('2') and None\nx"))
	require.Equal(t, "Error:   line 1: x\nNameError: name 'x' is not defined", py(r, "a", "x"))
	require.Equal(t, "'2'", py(r, "a", "open('f').read()"))
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() { require.Equal(t, fmt.Sprint(n*n), py(r, "a", fmt.Sprintf("%d ** 2", n))) })
	}
	all.Wait()
	r.End("a")
}

func TestShell(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	for _, c := range [][2]string{
		{"echo out; echo err >&2; pwd", "out\nerr\n/workspace"},
		{"true", "(no output)"},
		{"echo a; exit 3", "a\n[exit status 3]"},
		{"no-such-command", "bash: line 1: no-such-command: command not found\n[exit status 127]"},
		{"cat", "(no output)"},
		{"echo $((1+1)) >f; cat <<E\n$(cat f)\nE", "2"},
		{"kill -9 $$", "Error: the command was stopped: it was ended by SIGKILL"},
		{"echo ok; sleep 100 & p=$!; kill $p; wait $p 2>/dev/null", "ok\n[exit status 143]"},
		{"ulimit -St 1; while :; do :; done", "Error: the command was stopped: it used too much processor time"},
		{"x=1; if", "bash: eval: line 2: syntax error: unexpected end of file\n[exit status 2]"},
	} {
		require.Equal(t, c[1], sh(r, "a", c[0]), c[0])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.Regexp(t, `^Error: the code ran longer than .* and was stopped$`, call(ctx, r, "a", "shell", "command", "(setsid sleep 1000 &); sleep 1000").Observation)
	require.Contains(t, sh(r, "a", "yes | head -c 10000000"), "characters left out]")
	half := sh(r, "a", `printf x; yes é | tr -d '\n' | head -c 100000`) // the limit falls into a character
	require.True(t, strings.HasSuffix(half, fmt.Sprintf("é\n[%d bytes left out]", 100_001-outputLimit+1)), half[len(half)-60:])
	r.End("a")
}

// A process has as much processor time as docs/sandbox.md says.
func TestProcessorTimeIsThatOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/sandbox.md")
	require.NoError(t, err)
	const limit = "import resource; resource.getrlimit(resource.RLIMIT_CPU)[0]"
	session, once := registry(t, sandbox.Bubblewrap, nil), registry(t, sandbox.Bubblewrap, map[string]any{"mode": "once"})
	require.Equal(t, "60", sh(session, "a", "ulimit -St"))
	require.Equal(t, "600", py(session, "a", limit))
	require.Equal(t, "60", py(once, "a", limit))
	require.Contains(t, string(page), "| processor time of a process (`shell` and `python` with `mode: once` 1 min, `python` else 10 min; `code_tests` its `timeout`) |")
	session.End("a")
	once.End("a")
}

func TestParameters(t *testing.T) {
	r := resources.New(resources.Options{Sandbox: "jail"})
	defer func() { require.NoError(t, r.Close()) }()
	_, err := NewPython(t.Context(), r, map[string]any{"mode": "twice"})
	require.EqualError(t, err, `the parameter mode is "twice"; allowed is session or once`)
	_, err = NewShell(t.Context(), r, map[string]any{"mode": "once"})
	require.ErrorContains(t, err, "mode")
	_, err = NewPython(t.Context(), r, nil)
	require.ErrorContains(t, err, "there is no kind")
}

// Links and pipes that a program leaves in its workspace, and folders without rights, are removed with it.
func TestEnd(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("x"), 0o644))
	require.Equal(t, "(no output)", sh(r, "a", "ln -s "+outside+" link; ln -s / root; mkfifo pipe; mkdir -p a/b/c; echo x >a/b/c/d; chmod 0 a/b/c a/b a; (setsid sleep 1000 >/dev/null 2>&1 &)"))
	require.Equal(t, "(no output)", py(r, "a", "import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True)"))
	r.End("a")
	require.FileExists(t, outside)
}

// Many trajectories at once leave no process and no descriptor.
func TestManyTrajectories(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	require.Equal(t, "1", py(r, "first", "1"))
	r.End("first")
	var all sync.WaitGroup
	wrong := make(chan string, 1000)
	for n := range 40 {
		all.Go(func() {
			id := fmt.Sprint("t", n)
			defer r.End(id)
			for i := range 3 {
				if got := py(r, id, fmt.Sprintf("x = globals().get('x', %d) + 1\nx", n)); got != fmt.Sprint(n+i+1) {
					wrong <- got
				}
			}
			if got := sh(r, id, fmt.Sprintf("echo %d", n)); got != fmt.Sprint(n) {
				wrong <- got
			}
		})
	}
	all.Wait()
	require.Empty(t, wrong)
	// What is left is what waits for the next trajectories: four times an interpreter and a shell, with three pipes and a pidfd each.
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.Less(t, len(files), 100)
}

func benchmark(b *testing.B, params map[string]any, step func(r *tools.Registry, n int)) {
	r := registry(b, sandbox.Bubblewrap, params)
	step(r, -1)
	var took []time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		step(r, n)
		took = append(took, time.Since(start))
		b.StopTimer()
		time.Sleep(150 * time.Millisecond) // the model's turn
		b.StartTimer()
		n++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

func check(b *testing.B, got, want string) {
	if strings.TrimSpace(got) != want {
		b.Fatalf("%q, not %q", got, want)
	}
}

func BenchmarkPythonSession(b *testing.B) {
	benchmark(b, nil, func(r *tools.Registry, n int) { check(b, py(r, "a", fmt.Sprintf("%d + 1", n)), fmt.Sprint(n+1)) })
}

func BenchmarkPythonOnce(b *testing.B) {
	benchmark(b, map[string]any{"mode": "once"}, func(r *tools.Registry, n int) { check(b, py(r, "a", fmt.Sprintf("%d + 1", n)), fmt.Sprint(n+1)) })
}

// A trajectory that begins: its first call meets an interpreter that was started ahead.
func BenchmarkPythonFirstCall(b *testing.B) {
	benchmark(b, nil, func(r *tools.Registry, n int) {
		check(b, py(r, fmt.Sprint(n), fmt.Sprintf("%d + 1", n)), fmt.Sprint(n+1))
	})
}

func BenchmarkShell(b *testing.B) {
	benchmark(b, nil, func(r *tools.Registry, n int) {
		check(b, sh(r, "a", fmt.Sprintf("echo $((%d + 1))", n)), fmt.Sprint(n+1))
	})
}

// A tree that this process could not watch for want of descriptors is the sandbox's failure, which is tried again; what a program did is told to the model.
func TestWhoEndedASession(t *testing.T) {
	var broken *tools.BrokenError
	require.ErrorAs(t, ended(&sandbox.ExitError{Exceeded: sandbox.Unwatched, Cause: syscall.EMFILE}), &broken)
	require.NotErrorAs(t, ended(&sandbox.ExitError{Exceeded: sandbox.Unwatched, Cause: syscall.EACCES}), &broken)
	require.NotErrorAs(t, ended(&sandbox.ExitError{Exceeded: "memory"}), &broken)
}

// The call that fills the workspace is stopped and says so; later ones run, so that files can be removed, but do not make it grow.
func TestAfterAFullWorkspace(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	const full = "the command was stopped: its files took too much room"
	require.Contains(t, sh(r, "a", "for i in 1 2 3; do head -c 30000000 /dev/zero >big$i; done; sleep 5"), full)
	time.Sleep(300 * time.Millisecond) // of a model that writes; the next shell is looked at meanwhile
	require.Equal(t, "3", sh(r, "a", "sleep 0.5; ls big* | wc -l"))
	require.Contains(t, sh(r, "a", "head -c 30000000 /dev/zero >big4; sleep 5"), full)
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, "gone", sh(r, "a", "rm big*; sleep 0.5; echo gone"))
	require.Contains(t, sh(r, "a", "for i in 1 2 3; do head -c 30000000 /dev/zero >big$i; done; sleep 5"), full)
}

// What a script printed before its time was over is told.
func TestOutputBeforeTheDeadline(t *testing.T) {
	r := registry(t, sandbox.Bubblewrap, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.Regexp(t, `^Error: the code ran longer than .* and was stopped\nIt had printed:\nfound it in line 7$`, call(ctx, r, "a", "shell", "command", "echo found it in line 7; sleep 60").Observation)
}
