package python_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/stretchr/testify/require"
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
