package python_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/sandbox"
)

// A sandboxed worker runs the same protocol, sees its folder's modules, and nothing of the host beside them.
func TestSandboxedWorkers(t *testing.T) {
	box, err := sandbox.Open(t.Context(), sandbox.Auto)
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	require.NoError(t, err)
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret.txt")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sibling.py"), []byte("WORD = 'beside'\n"), 0o644))
	t.Setenv("AGENTFLY_TEST_SECRET", "secret")
	file := filepath.Join(dir, "tools.py")
	require.NoError(t, os.WriteFile(file, []byte(`
import os, socket
from agentfly import state, tool
from sibling import WORD

@tool()
def word():
    return WORD

@tool()
def read(path: str):
    return open(path).read()

@tool()
def write(path: str):
    with open(path, "w") as f:
        f.write("x")
    return open(path).read()

@tool()
def environment():
    return os.environ.get("AGENTFLY_TEST_SECRET", "nothing")

@tool()
def connect():
    socket.create_connection(("127.0.0.1", 9), timeout=1)

@tool(stateful=True)
def count():
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@tool(timeout=1)
def hang():
    while True:
        pass

@tool()
def crash():
    os._exit(5)
`), 0o644))
	m, err := python.Load(t.Context(), file, python.Options{Workers: 2, Sandbox: box})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	one := func(name, arguments string) string {
		got, err := call(t.Context(), m, name, "t", arguments)
		if err != nil {
			return err.Error()
		}
		return got
	}
	require.Equal(t, `"beside"`, one("word", `{}`))
	require.Contains(t, one("read", `{"path": "`+secret+`"}`), "No such file or directory")
	require.Equal(t, `"x"`, one("write", `{"path": "note.txt"}`))
	require.Contains(t, one("write", `{"path": "`+file+`"}`), "Read-only file system")
	require.Equal(t, `"nothing"`, one("environment", `{}`))
	require.Contains(t, one("connect", `{}`), "Error")
	require.Equal(t, "1", one("count", `{}`))
	require.Equal(t, "2", one("count", `{}`))
	require.Equal(t, "hang took longer than 1s; ask it for less work", one("hang", `{}`))
	require.Equal(t, "crash broke: its process ended", one("crash", `{}`))
	require.Equal(t, `"beside"`, one("word", `{}`))
	require.NoFileExists(t, filepath.Join(dir, "note.txt"))
}

// A sandboxed file sees itself, the modules beside it that it imports, the interpreter's packages, and nothing else: neither what lies beside
// it nor what PYTHONPATH names, also where the folder is itself a virtual environment.
func TestSandboxedFilesSeeNoNeighbour(t *testing.T) {
	box, err := sandbox.Open(t.Context(), sandbox.Auto)
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	require.NoError(t, err)
	dir, path := t.TempDir(), t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return file
	}
	secrets := []string{write(".env", "KEY=1"), write("data/secret.txt", "KEY=1"), write("other.py", "KEY = 1"), write("pkg/unused.py", "KEY = 1"), write("pkg/key.pem", "KEY")}
	inPath := filepath.Join(path, "secret.txt")
	require.NoError(t, os.WriteFile(inPath, []byte("KEY=1"), 0o644))
	secrets = append(secrets, inPath)
	t.Setenv("PYTHONPATH", path)
	write("sibling.py", "import pkg.deep.leaf\nfrom pkg import part\nWORD = pkg.deep.leaf.LEAF + part.PART\n")
	write("pkg/__init__.py", "from .base import BASE\n")
	write("pkg/base.py", "BASE = 'base'\n")
	write("pkg/part.py", "from . import base\nPART = base.BASE\n")
	write("pkg/deep/leaf.py", "from ..base import BASE\nLEAF = 'leaf'\n") // deep has no __init__.py
	write("late.py", "WORD = 'late'\n")
	write("shown/words.txt", "shown")
	file := write("tools.py", `
import os
from agentfly import tool

def text(path):
    with open(path) as f:
        return f.read()

@tool()
def read(path: str):
    return text(path)

@tool()
def names(path: str):
    return sorted(os.listdir(path))

@tool()
def words():
    import sibling
    if not sibling:
        from late import WORD
    return sibling.WORD

@tool()
def late():
    import late
    return late.WORD
`)
	open := func(o python.Options) *python.Module {
		o.Workers, o.Sandbox = 1, box
		m, err := python.Load(t.Context(), file, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	}
	hidden := func(m *python.Module) {
		for _, secret := range secrets {
			_, err := call(t.Context(), m, "read", "t", `{"path": "`+secret+`"}`)
			require.Regexp(t, "No such file|Permission denied", err, secret)
		}
	}
	m := open(python.Options{})
	hidden(m)
	for function, want := range map[string]string{"words": `"leafbase"`, "late": `"late"`} {
		got, err := call(t.Context(), m, function, "t", `{}`)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = call(t.Context(), m, "read", "t", `{"path": "`+filepath.Join(dir, "shown", "words.txt")+`"}`)
	require.Error(t, err)

	shown := open(python.Options{Show: []string{filepath.Join(dir, "shown")}})
	got, err := call(t.Context(), shown, "read", "t", `{"path": "`+filepath.Join(dir, "shown", "words.txt")+`"}`)
	require.NoError(t, err)
	require.Equal(t, `"shown"`, got)
	hidden(shown)

	require.NoError(t, exec.Command("python3", "-m", "venv", "--without-pip", dir).Run())
	hidden(open(python.Options{Interpreter: filepath.Join(dir, "bin", "python3")}))
}

func TestSandboxedGPythonSeesNoNeighbour(t *testing.T) {
	box, err := sandbox.Open(t.Context(), sandbox.Auto)
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	require.NoError(t, err)
	dir := t.TempDir()
	secret, file := filepath.Join(dir, "secret.txt"), filepath.Join(dir, "tools.py")
	require.NoError(t, os.WriteFile(secret, []byte("KEY=1"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "words.py"), []byte("import more\n\ndef greet():\n    return more.WORD\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more.py"), []byte("WORD = 'more'\n"), 0o644))
	require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\nfrom words import greet\n\n@tool()\ndef hello():\n    return greet()\n\n@tool()\ndef read(path: str):\n    with open(path) as f:\n        return f.read()\n"), 0o644))
	m, err := python.Load(t.Context(), file, python.Options{Runtime: python.GPython, Workers: 1, Sandbox: box})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	got, err := call(t.Context(), m, "hello", "", `{}`)
	require.NoError(t, err)
	require.Equal(t, `"more"`, got)
	_, err = call(t.Context(), m, "read", "", `{"path": "`+secret+`"}`)
	require.Error(t, err)
}
