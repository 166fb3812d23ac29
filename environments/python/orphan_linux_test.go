package pyenv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/openenv"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools/workspace"
)

// orphans tells this test's program to begin a step that keeps the interpreter's lock, and to wait until it is killed.
const orphans = "PYENV_TEST_ORPHANS"

func TestMain(m *testing.M) {
	switch os.Getenv(orphans) {
	case "":
		code := m.Run()
		if folder, err := testFolder(); err == nil {
			_ = os.RemoveAll(folder) // it holds nothing
		}
		os.Exit(code)
	case "all":
		holdAll()
	case "container":
		holdContainer()
	case "again":
		startAgain()
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

// everything opens what a run may hold on this machine and others: an environment in a worker, one in a sandbox, a workspace with a program, and a
// session of an OpenEnv server.
func everything(r *resources.Resources) (starts []func() error, err error) {
	ctx := context.Background()
	open := func(kind environments.Kind, params map[string]any) error {
		s, err := kind.New(ctx, r, params)
		if err != nil {
			return err
		}
		e, err := s.New(ctx, "test")
		if err != nil {
			return err
		}
		starts = append(starts, func() error { _, err := e.Reset(ctx, environments.Start{}); return err })
		r.OnClose(s.Close)
		r.OnClose(e.Close)
		return nil
	}
	if err := open(pyenv.Kind(), map[string]any{"class": worlds + ":Litters"}); err != nil {
		return nil, err
	}
	if err := open(pyenv.Kind(), map[string]any{"class": worlds + ":Litters", "sandboxed": true}); err != nil {
		return nil, err
	}
	if err := open(openenv.Kind(), map[string]any{"hosts": []string{os.Getenv("PYENV_TEST_SERVER")}}); err != nil {
		return nil, err
	}
	all, err := workspace.Of(r)
	if err != nil {
		return nil, err
	}
	w, err := all.Get("trajectory")
	if err != nil {
		return nil, err
	}
	return starts, os.WriteFile(filepath.Join(w.Dir(), "mine"), nil, 0o600)
}

// holdAll holds everything until it is killed.
func holdAll() {
	starts, err := everything(resources.New(resources.Options{}))
	for _, start := range starts {
		if err == nil {
			err = start()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("held")
	select {}
}

// startAgain is the next start of the run, which ends well.
func startAgain() {
	r := resources.New(resources.Options{})
	err := r.Begin(context.Background())
	starts, opened := everything(r)
	err = errors.Join(err, opened)
	for _, start := range starts {
		if err == nil {
			err = start()
		}
	}
	if err = errors.Join(err, r.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// descendants are a process's, with those of its children.
func descendants(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// After kill -9 no process is left of any placement and no session on a server; the next start removes the folders, however soon it comes.
func TestTheNextStartCollectsOrphans(t *testing.T) {
	needPython(t)
	source := environments.Simple(environments.Spec{}, func() environments.Environment { return &counted{} })
	server, err := openenv.NewServer(source, openenv.ServerOptions{})
	require.NoError(t, err)
	web := httptest.NewServer(server)
	defer web.Close()
	temp := t.TempDir()
	start := func(mode string) *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), orphans+"="+mode, "TMPDIR="+temp, "PYENV_TEST_SERVER="+web.URL)
		c.Stderr = os.Stderr
		return c
	}
	c := start("all")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)
	pids := descendants(c.Process.Pid)
	require.GreaterOrEqual(t, len(pids), 4, "two workers with a child each")
	require.EqualValues(t, 1, openWorlds.Load())
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.NotEmpty(t, left)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	escaped := func(pid int) bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return string(name) == "sleep\n"
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return running(pid) && !escaped(pid) }) && openWorlds.Load() == 0
	}, 20*time.Second, 20*time.Millisecond)

	require.NoError(t, start("again").Run())
	require.Eventually(t, func() bool { return !slices.ContainsFunc(pids, running) && openWorlds.Load() == 0 }, 20*time.Second, 20*time.Millisecond)
	left, err = os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range all { // of the second start neither, which ended well
		environ, _ := os.ReadFile(file)
		require.False(t, strings.Contains(string(environ), "TMPDIR="+temp), file)
	}
	require.NoError(t, server.Drain(10*time.Second))
}

// openWorlds counts the environments of the server that are not closed.
var openWorlds atomic.Int64

// counted is an environment on a server.
type counted struct{ begun bool }

func (c *counted) Reset(context.Context, environments.Start) (environments.Observation, error) {
	if !c.begun {
		c.begun = true
		openWorlds.Add(1)
	}
	return environments.Text("begin"), nil
}

func (c *counted) Step(context.Context, environments.Action) (environments.Result, error) {
	return environments.Result{Observation: environments.Text("on")}, nil
}

func (c *counted) Close() error {
	if c.begun {
		openWorlds.Add(-1)
	}
	return nil
}
