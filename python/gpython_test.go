package python_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/sandbox"
)

// embedded loads a file of the given text with gpython; Python is not needed.
func embedded(t *testing.T, o python.Options, text string) *python.Module {
	t.Helper()
	o.Runtime = python.GPython
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	m, err := python.Load(t.Context(), file, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// gpython cannot be interrupted, and an endless recursion or too much memory ends its process: only the call fails.
func TestGPythonCallsThatBreakFailAlone(t *testing.T) {
	m := embedded(t, python.Options{Workers: 1, Memory: 512 << 20}, `
from agentfly import state, tool

@tool(timeout=0.3)
def loops():
    while True:
        pass

@tool()
def recurses(n: int = 0):
    return recurses(n + 1)

@tool(timeout=60)
def grows():
    x = ["x"]
    while True:
        x = x + x

@tool()
def reads():
    import sys
    return sys.stdin.read()

@tool(stateful=True)
def count():
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@tool()
def ok():
    return "ok"
`)
	for name, want := range map[string]string{
		"loops":    "loops took longer than 300ms; ask it for less work",
		"recurses": "recurses broke: its process ended",
		"grows":    "grows broke: its process ended",
	} {
		_, err := call(t.Context(), m, name, "", `{}`)
		var broken *python.BrokenError
		require.True(t, errors.As(err, &broken), "%s: %v", name, err)
		require.Equal(t, want, broken.Text)
		got, err := call(t.Context(), m, "ok", "", `{}`)
		require.NoError(t, err)
		require.Equal(t, `"ok"`, got)
	}
	got, err := call(t.Context(), m, "reads", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, `""`, got)
	for _, want := range []string{"1", "2"} {
		got, err := call(t.Context(), m, "count", "t", `{}`)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.True(t, m.Keeps("t"))
}

// Where there is no python3, auto is gpython.
func TestAutoWithoutPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte("import sys\nfrom agentfly import tool\n\n@tool()\ndef where():\n    return hasattr(sys, \"version_info\")\n"), 0o600))
	m, err := python.Load(t.Context(), file, python.Options{Workers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	got, err := call(t.Context(), m, "where", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, "false", got, "CPython has it")
}

// A worker whose memory is too little for itself ends in a trace of its runtime, so it is refused.
func TestTooLittleMemoryOfAWorker(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\n\n@tool()\ndef f():\n    return 1\n"), 0o600))
	for name, least := range map[string]int64{python.GPython: 256, python.CPython: 64} {
		_, err := python.Load(t.Context(), file, python.Options{Runtime: name, Workers: 1, Memory: (least - 1) << 20})
		require.EqualError(t, err, fmt.Sprintf("python: memory is %d MiB, in which a worker of this runtime does not start; give %d or more", least-1, least))
		m, err := python.Load(t.Context(), file, python.Options{Runtime: name, Workers: 1, Memory: least << 20})
		require.NoError(t, err)
		require.NoError(t, m.Close())
	}
}

// Modules of the file's folder are read in the same way, and what is wrong in them is named.
func TestGPythonReadsModulesOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tools.py")
	require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\nfrom words import greet\n\n\n@tool()\ndef hello(name: str = \"you\"):\n    return greet(name)\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "words.py"), []byte("import math\n\ndef greet(name):\n    return \"%5s %.1f\" % (name, math.pi)\n"), 0o600))
	m, err := python.Load(t.Context(), file, python.Options{Runtime: python.GPython, Workers: 1})
	require.NoError(t, err)
	got, err := m.Call(t.Context(), "hello", "", json.RawMessage(`{"name": "me"}`))
	require.NoError(t, err)
	require.Equal(t, `"   me 3.1"`, string(got))
	require.NoError(t, m.Close())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "words.py"), []byte("def greet(name):\n    return f\"{name}\"\n"), 0o600))
	_, err = python.Load(t.Context(), file, python.Options{Runtime: python.GPython, Workers: 1})
	require.EqualError(t, err, file+`:1: it imports words.py, of which line 2:12: gpython has no f-strings; use "…" % (…) or "…".format(…); or use runtime: cpython`)
}

// What gpython would compile wrongly is refused.
func TestGPythonRefusesVariablesThatItMixesUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte(`from agentfly import tool

@tool()
def f(a: list, b: int):
    def add(x):
        return [b * x for z in a]
    return add(1)
`), 0o600))
	_, err := python.Load(t.Context(), file, python.Options{Runtime: python.GPython, Workers: 1})
	require.EqualError(t, err, file+":5:9: gpython mixes up the variables of add: those of the function around it (a, b), and its own that a function or comprehension within it uses (x); "+
		"pass them as arguments; or use runtime: cpython")
}

func TestGPythonInASandbox(t *testing.T) {
	box, err := sandbox.Open(t.Context(), sandbox.Auto)
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	require.NoError(t, err)
	m := embedded(t, python.Options{Workers: 1, Sandbox: box}, `
from agentfly import tool

@tool()
def read(path: str):
    with open(path) as f:
        return f.read()

@tool()
def ok():
    return 2.0
`)
	got, err := call(t.Context(), m, "ok", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, "2.0", got)
	secret := filepath.Join(t.TempDir(), "secret.txt")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o644))
	_, err = m.Call(t.Context(), "read", "", json.RawMessage(`{"path": "`+secret+`"}`))
	var raised *python.Error
	require.True(t, errors.As(err, &raised), "%v", err)
	require.NotContains(t, raised.Text, "secret'")
}
