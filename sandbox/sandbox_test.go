//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens bubblewrap, or skips.
func open(t testing.TB) *Sandbox {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("bwrap is not installed: apt-get install bubblewrap")
	}
	s, err := Open(t.Context(), Bubblewrap)
	require.NoError(t, err)
	return s
}

func run(t testing.TB, s *Sandbox, p Program) Result {
	t.Helper()
	r, err := s.Run(t.Context(), p)
	require.NoError(t, err)
	return r
}

func shell(script string) Program { return Program{Args: []string{"sh", "-c", script}} }

func TestRun(t *testing.T) {
	s := open(t)
	require.Equal(t, Bubblewrap, s.Kind())

	r := run(t, s, shell("echo out; echo err >&2; pwd; whoami; exit 3"))
	require.Equal(t, "out\n/workspace\nnobody\n", string(r.Stdout))
	require.Equal(t, "err\n", string(r.Stderr))
	require.Equal(t, 3, r.Exit)
	require.Empty(t, r.Signal)
	require.False(t, r.TimedOut)
	require.Positive(t, r.Wall)

	p := shell("cat; echo $X; echo $HOME")
	p.Stdin, p.Env = []byte("in\n"), []string{"X=1"}
	require.Equal(t, "in\n1\n/workspace\n", string(run(t, s, p).Stdout))

	r = run(t, s, shell("kill -SEGV $$"))
	require.Equal(t, -1, r.Exit)
	require.Equal(t, "SIGSEGV", r.Signal)

	r = run(t, s, Program{Args: []string{"no-such-program"}})
	require.Equal(t, 127, r.Exit)
	require.Contains(t, string(r.Stderr), "no-such-program")

	p = shell("while :; do :; done")
	p.Limits.Wall = 300 * time.Millisecond
	r = run(t, s, p)
	require.True(t, r.TimedOut)
	require.Equal(t, -1, r.Exit)
	require.Positive(t, r.Processor)
}

func TestWorkspaceAndReadOnly(t *testing.T) {
	s := open(t)
	work, other := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "a"), []byte("a"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(other, "b"), []byte("b"), 0o644))
	p := shell("cat a; cat $1/b; echo c >c; echo d 2>/dev/null >$1/d || echo no")
	p.Args = append(p.Args, "sh", other)
	p.Workspace, p.ReadOnly = work, []string{other}
	r := run(t, s, p)
	require.Equal(t, "abno\n", string(r.Stdout), string(r.Stderr))
	c, err := os.ReadFile(filepath.Join(work, "c"))
	require.NoError(t, err)
	require.Equal(t, "c\n", string(c))
	require.NoFileExists(t, filepath.Join(other, "d"))
}

func TestStart(t *testing.T) {
	s := open(t)
	p, err := s.Start(t.Context(), shell("while read x; do echo got $x; done; exit 4"))
	require.NoError(t, err)
	for _, word := range []string{"one", "two"} {
		_, err = p.Stdin().Write([]byte(word + "\n"))
		require.NoError(t, err)
		b := make([]byte, 100)
		n, err := p.Stdout().Read(b)
		require.NoError(t, err)
		require.Equal(t, "got "+word+"\n", string(b[:n]))
	}
	require.NoError(t, p.Stdin().Close())
	var exit *ExitError
	require.ErrorAs(t, p.Wait(), &exit)
	require.Equal(t, 4, exit.Exit)
	require.NoError(t, p.Kill())
	require.NoError(t, p.Kill())

	ctx, cancel := context.WithCancel(t.Context())
	p, err = s.Start(ctx, shell("sleep 1000"))
	require.NoError(t, err)
	cancel()
	require.ErrorAs(t, p.Wait(), &exit)
	require.Equal(t, "SIGKILL", exit.Signal)
	require.NoError(t, p.Kill())
}

// Seen from outside, nothing of a tree is root's.
func TestUser(t *testing.T) {
	s := open(t)
	p, err := s.Start(t.Context(), shell("echo up; sleep 1000"))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Kill()) }()
	_, err = p.Stdout().Read(make([]byte, 10))
	require.NoError(t, err)
	want := strconv.Itoa(os.Getuid())
	if want == "0" {
		want = "65534"
	}
	tree, err := descendants(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(tree), 3) // bwrap, sh, sleep
	for _, pid := range tree {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(t, err)
		require.Regexp(t, `\nUid:\t`+want+`\t`+want+`\t`+want+`\t`+want+`\n`, string(text))
		require.NotRegexp(t, `\nGroups:.*\b0\b`, string(text))
	}
}

func TestErrors(t *testing.T) {
	_, err := Open(t.Context(), "jail")
	require.EqualError(t, err, `sandbox: there is no kind "jail"; the kinds are auto, bubblewrap, landlock, none`)
	s := open(t)
	_, err = s.Run(t.Context(), Program{})
	require.ErrorContains(t, err, "has no arguments")
	_, err = s.Run(t.Context(), Program{Args: []string{"true"}, Workspace: "relative"})
	require.ErrorContains(t, err, "is not an absolute path")
	_, err = s.Run(t.Context(), Program{Args: []string{"true"}, ReadOnly: []string{"/no/such/folder"}})
	require.ErrorContains(t, err, "was not started")
	require.ErrorContains(t, err, "/no/such/folder")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Run(ctx, shell("true"))
	require.ErrorIs(t, err, context.Canceled)
}

func TestManyAtOnce(t *testing.T) {
	s := open(t)
	results := make(chan string, 40)
	for range 40 {
		go func() {
			r, err := s.Run(context.Background(), shell("echo $$"))
			if err != nil {
				results <- err.Error()
				return
			}
			results <- fmt.Sprintf("%sexit %d, signal %q, timed out %v, exceeded %q", r.Stdout, r.Exit, r.Signal, r.TimedOut, r.Exceeded)
		}()
	}
	for range 40 {
		require.Regexp(t, `^\d+\n`, <-results) // with how it ended, if it did not get so far
	}
}
