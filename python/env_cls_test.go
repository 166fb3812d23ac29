package python_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
)

const envClassFile = `
import asyncio, os
from agentfly import reward, tool

LOG = %q

def log(text):
    with open(LOG, "a") as f:
        f.write(text + "\n")

class World:
    made = 0

    def __init__(self, fails=""):
        World.made += 1
        self.name, self.fails = "w%d" % World.made, fails
        log("made " + self.name)

    async def start(self):
        await asyncio.sleep(0.05)

    async def reset(self):
        if self.fails == "hangs":
            await asyncio.sleep(60)
        if self.fails:
            raise RuntimeError("no level " + self.fails)

    async def step(self, action):
        return self.name + " " + action

    async def aclose(self):
        log("closed " + self.name)

@tool(env_cls=World)
async def walk(env: World):
    return await env.step("on")

@tool(env_cls=World, env_kwargs={"fails": "9"})
async def fails(env):
    return "never"

@tool(env_cls=World, env_kwargs={"fails": "hangs"})
async def hangs(env):
    return "never"

@tool()
async def waits():
    await asyncio.sleep(60)

@tool(stateful=True)
def remembers():
    from agentfly import state
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@reward(env_cls=World)
async def seen(final_response, env):
    log("scored " + env.name)
    return 1.0
`

// Every instance of an env_cls that was made is closed, once: after its trajectory, where its reset fails or is cut off, and where two calls come at
// once, which get the same one.
func TestInstancesOfEnvClassAreClosed(t *testing.T) {
	needPython(t)
	file := filepath.Join(t.TempDir(), "log")
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, strings.Replace(envClassFile, "%q", `"`+file+`"`, 1))
	lines := func() []string {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		require.NoError(t, err)
		return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(data)), " ", ":"))
	}
	logged := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(lines()) >= len(want) }, 5*time.Second, 10*time.Millisecond, "%v", lines())
		require.Equal(t, want, lines())
		require.NoError(t, os.Remove(file))
	}
	both := make(chan string, 2)
	for range 2 {
		go func() { r, _ := call(t.Context(), m, "walk", "t1", "{}"); both <- r }()
	}
	require.Equal(t, `"w1 on"`, <-both)
	require.Equal(t, `"w1 on"`, <-both, "the same instance")
	_, err := call(t.Context(), m, "seen", "t1", `{"final_response":""}`)
	require.NoError(t, err)
	m.End("t1")
	logged("made:w1", "scored:w1", "closed:w1")

	_, err = call(t.Context(), m, "fails", "t2", "{}")
	require.ErrorContains(t, err, "no level 9")
	logged("made:w2", "closed:w2")
	m.End("t2")

	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	_, err = call(ctx, m, "hangs", "t3", "{}")
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	logged("made:w3", "closed:w3")
	m.End("t3")
}

// An async call that waits when its time is over is cancelled at once, also where nothing else wakes the loop: its worker, and what others keep in it, live on.
func TestACancelledAsyncCallLosesNoWorker(t *testing.T) {
	needPython(t)
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, strings.Replace(envClassFile, "%q", `"/dev/null"`, 1))
	_, err := call(t.Context(), m, "remembers", "other", "{}")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	_, err = call(ctx, m, "waits", "t", "{}")
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(1500 * time.Millisecond) // beyond the second after which a worker that does not react is killed
	n, err := call(t.Context(), m, "remembers", "other", "{}")
	require.NoError(t, err)
	require.Equal(t, "2", n)
}

// A call that is cancelled before it began never runs: an async one that waits for a loop which another call holds, and a plain one that
// waits for what a trajectory kept to be closed. Its worker, and what others keep in it, live on.
func TestACallThatIsCancelledBeforeItBegins(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, strings.ReplaceAll(`
import asyncio, os, time
from agentfly import state, tool

def hold(name):
    open(os.path.join("DIR", name + ".held"), "w").close()
    while not os.path.exists(os.path.join("DIR", name + ".over")):
        time.sleep(0.01)

class Slow:
    def close(self):
        hold("plain")

@tool(stateful=True)
def counts():
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@tool(stateful=True)
def keeps():
    state()["slow"] = Slow()

@tool()
async def holds():
    hold("async")

@tool()
async def waits():
    open(os.path.join("DIR", "began"), "w").close()
    await asyncio.sleep(60)

@tool()
def sleeps():
    open(os.path.join("DIR", "began"), "w").close()
    time.sleep(60)
`, "DIR", dir))
	n, err := call(t.Context(), m, "counts", "other", "{}")
	require.NoError(t, err)
	require.Equal(t, "1", n)
	_, err = call(t.Context(), m, "keeps", "t", "{}")
	require.NoError(t, err)
	for _, kind := range []struct{ name, call string }{{"async", "waits"}, {"plain", "sleeps"}} {
		if kind.name == "async" {
			go func() { _, _ = call(t.Context(), m, "holds", "", "{}") }()
		} else {
			m.End("t")
		}
		require.Eventually(t, func() bool { return exists(filepath.Join(dir, kind.name+".held")) }, 20*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = call(ctx, m, kind.call, "u", "{}")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(100 * time.Millisecond) // the worker has read it
		require.NoError(t, os.WriteFile(filepath.Join(dir, kind.name+".over"), nil, 0o600))
		time.Sleep(1500 * time.Millisecond) // beyond the second after which a worker that does not react is killed
		require.False(t, exists(filepath.Join(dir, "began")), kind.name)
	}
	n, err = call(t.Context(), m, "counts", "other", "{}")
	require.NoError(t, err)
	require.Equal(t, "2", n)
}

// Nothing of such a call is left behind, so that its worker takes others, also where it keeps nothing of anybody.
func TestTheWorkerOfACallThatNeverBeganGoesOn(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, strings.ReplaceAll(`
import os, time
from agentfly import tool

@tool()
def pid():
    return os.getpid()

@tool()
async def holds():
    open(os.path.join("DIR", "held"), "w").close()
    while not os.path.exists(os.path.join("DIR", "over")):
        time.sleep(0.01)

@tool()
async def waits():
    open(os.path.join("DIR", "began"), "w").close()
`, "DIR", dir))
	before, err := call(t.Context(), m, "pid", "", "{}")
	require.NoError(t, err)
	held := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), m, "holds", "", "{}")
		held <- err
	}()
	require.Eventually(t, func() bool { return exists(filepath.Join(dir, "held")) }, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = call(ctx, m, "waits", "", "{}")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(100 * time.Millisecond) // the worker has read that it is cancelled
	require.NoError(t, os.WriteFile(filepath.Join(dir, "over"), nil, 0o600))
	require.NoError(t, <-held)
	time.Sleep(1500 * time.Millisecond) // the call that never began has answered
	after, err := call(t.Context(), m, "pid", "", "{}")
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.False(t, exists(filepath.Join(dir, "began")))
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
