package files

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/code"
	"github.com/agentfly/agentfly/tools/workspace"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type agent struct {
	t   *testing.T
	all *tools.Registry
	dir string // of trajectory a
}

func newAgent(t *testing.T, names ...string) *agent {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r := resources.New(resources.Options{})
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		left, err := os.ReadDir(temp)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	c := tools.NewCatalog()
	require.NoError(t, Add(c))
	require.NoError(t, code.Add(c))
	all := tools.NewRegistry(tools.Options{})
	for _, name := range append([]string{"file_create", "file_read", "file_edit", "file_undo", "file_list", "file_grep"}, names...) {
		made, err := c.Make(t.Context(), r, tools.Ref{Name: name})
		require.NoError(t, err)
		require.NoError(t, all.Register(made...))
		require.True(t, made[0].Spec().Stateful)
	}
	spaces, err := workspace.Of(r)
	require.NoError(t, err)
	w, err := spaces.Get("a")
	require.NoError(t, err)
	return &agent{t, all, w.Dir()}
}

func (a *agent) call(name string, arguments map[string]any) string {
	a.t.Helper()
	raw, err := json.Marshal(arguments)
	require.NoError(a.t, err)
	got := a.all.Invoke(context.Background(), "a", trajectory.ToolCall{Name: name, Arguments: raw}).Observation
	require.NotContains(a.t, got, a.dir)
	return got
}

type args = map[string]any

func TestFiles(t *testing.T) {
	a := newAgent(t)
	require.Equal(t, "there are no files", a.call("file_list", args{}))
	require.Equal(t, "src/a.py has 2 lines", a.call("file_create", args{"path": "src/a.py", "content": "x = 1\ny = 2\n"}))
	require.Equal(t, `Error: "src/a.py" exists; change it with file_edit or choose another name`, a.call("file_create", args{"path": "/workspace/src/a.py", "content": ""}))
	require.Equal(t, "1\tx = 1\n2\ty = 2", a.call("file_read", args{"path": "src/a.py"}))
	require.Equal(t, "2\ty = 2", a.call("file_read", args{"path": "src/a.py", "first": 2, "last": 9}))
	require.Equal(t, `Error: "src/a.py" has 2 lines; there are none from 3 to 2`, a.call("file_read", args{"path": "src/a.py", "first": 3}))
	require.Equal(t, "src/a.py is now:\n1\tx = 1\n2\ty = 3", a.call("file_edit", args{"path": "src/a.py", "old": "2", "new": "3"}))
	require.Equal(t, `Error: the text old does not occur in "src/a.py"; file_read shows the file`, a.call("file_edit", args{"path": "src/a.py", "old": "z", "new": "3"}))
	require.Equal(t, `Error: the text old occurs 2 times in "src/a.py"; give more of the text around it`, a.call("file_edit", args{"path": "src/a.py", "old": " = ", "new": "="}))
	require.Equal(t, "Error: old is empty; give the text that is replaced", a.call("file_edit", args{"path": "src/a.py", "old": "", "new": "="}))
	require.Equal(t, "src/a.py is now:\n1\tz = 1\n2\ty = 3", a.call("file_edit", args{"path": "src/a.py", "old": "x", "new": "z"}))
	require.Equal(t, "src/a.py:1: z = 1", a.call("file_grep", args{"pattern": `^z`}))
	require.Equal(t, "no line matches", a.call("file_grep", args{"pattern": `^w`, "path": "src"}))
	require.Contains(t, a.call("file_grep", args{"pattern": `(`}), "Error: the pattern is no regular expression: ")
	require.Equal(t, "src/\nsrc/a.py (12 bytes)", a.call("file_list", args{}))
	require.Equal(t, "src/a.py has 2 lines again", a.call("file_undo", args{"path": "src/a.py"}))
	require.Equal(t, "src/a.py has 2 lines again", a.call("file_undo", args{"path": "src/a.py"}))
	require.Equal(t, "1\tx = 1\n2\ty = 2", a.call("file_read", args{"path": "src/a.py"}))
	require.Equal(t, "src/a.py is removed again", a.call("file_undo", args{"path": "src/a.py"}))
	require.Equal(t, `Error: there is no change of "src/a.py" to take back`, a.call("file_undo", args{"path": "src/a.py"}))
	require.Equal(t, `Error: there is no file "src/a.py"; file_list shows what there is`, a.call("file_read", args{"path": "src/a.py"}))
	require.Equal(t, `Error: "src" is a folder`, a.call("file_read", args{"path": "src"}))
	require.Equal(t, "empty has 0 lines", a.call("file_create", args{"path": "empty", "content": ""}))
	require.Equal(t, "empty is empty", a.call("file_read", args{"path": "empty"}))
	require.Contains(t, a.call("file_create", args{"path": "big", "content": strings.Repeat("x", maxFile+1)}), "at most 1048576 are allowed")
	for n := range 63 {
		require.Contains(t, a.call("file_create", args{"path": string(rune('A' + n)), "content": strings.Repeat("x", maxFile)}), "has 1 line")
	}
	require.Contains(t, a.call("file_create", args{"path": "last", "content": strings.Repeat("x", maxFile)}), "has 1 line")
	require.Equal(t, "Error: the workspace is full; at most 67108864 bytes are allowed", a.call("file_create", args{"path": "beyond", "content": "x"}))
	a.all.End("a")
	require.NoDirExists(t, a.dir)
}

// Nothing that a program leaves in the workspace makes the tools read or write outside, or wait.
func TestFilesStayInside(t *testing.T) {
	a := newAgent(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o644))
	link := func(to, name string) { require.NoError(t, os.Symlink(to, filepath.Join(a.dir, name))) }
	link(secret, "absolute")
	link(outside, "folder")
	link("../../../../../../../.."+secret, "relative")
	link("..", "up")
	link("loop", "loop")
	link("missing/../absolute", "indirect")
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "inside"), []byte("in"), 0o644))
	link("inside", "fine")
	require.NoError(t, exec.Command("mkfifo", filepath.Join(a.dir, "pipe")).Run())
	l, err := net.Listen("unix", filepath.Join(a.dir, "socket"))
	require.NoError(t, err)
	defer l.Close()

	require.Equal(t, "1\tin", a.call("file_read", args{"path": "fine"}))
	for _, path := range []string{
		"absolute", "folder/secret", "relative", "up/x", "loop", "indirect", "pipe", "socket", "../x", "..", "/etc/passwd", secret,
		"x/../../y", "/workspace/../x", "/workspacex/y", "a\x00b", strings.Repeat("x", 5000), "folder", ".", "",
	} {
		require.Contains(t, a.call("file_read", args{"path": path}), "Error: ", path)
		require.Contains(t, a.call("file_create", args{"path": path, "content": "overwritten"}), "Error: ", path)
		require.Contains(t, a.call("file_edit", args{"path": path, "old": "secret", "new": "overwritten"}), "Error: ", path)
	}
	require.Contains(t, a.call("file_create", args{"path": "folder/new", "content": "x"}), "Error: ")
	require.Contains(t, a.call("file_list", args{"path": "folder"}), "Error: ")
	require.Equal(t, "no line matches", a.call("file_grep", args{"pattern": "secret"}))
	require.Contains(t, a.call("file_list", args{}), "folder (link)\n")
	text, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))
	require.NoFileExists(t, filepath.Join(outside, "new"))
	entries, err := os.ReadDir(filepath.Dir(a.dir))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// What grep does not look at it says: "no line matches" would be a claim about it.
func TestGrepSaysWhatItLeftOut(t *testing.T) {
	a := newAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "binary"), []byte("needle\x00"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "long"), []byte(strings.Repeat("needle\n", maxFile/7+1)), 0o644))
	require.Equal(t, "no line matches\n[left out as no text or too large: 2]", a.call("file_grep", args{"pattern": "needle"}))
	require.Equal(t, `Error: "binary" is not a text file`, a.call("file_grep", args{"pattern": "needle", "path": "binary"}))
	require.Contains(t, a.call("file_grep", args{"pattern": "needle", "path": "long"}), `Error: "long" has `)
	a.call("file_create", args{"path": "text", "content": "a needle\n"})
	require.Equal(t, "text:1: a needle\n[left out as no text or too large: 2]", a.call("file_grep", args{"pattern": "needle"}))
	require.Equal(t, "text:1: a needle", a.call("file_grep", args{"pattern": "needle", "path": "text"}))
	require.Equal(t, "1\ta needle", a.call("file_read", args{"path": "text", "first": 1.0, "last": json.RawMessage("2e0")}))
	require.Equal(t, `Error: the argument "first" cannot hold the number 100000000000000000000; write another value`,
		a.call("file_read", args{"path": "text", "first": json.RawMessage("100000000000000000000")}))
}

// Programs and these tools work on the same files, whoever they run as.
func TestFilesAndPrograms(t *testing.T) {
	if _, err := sandbox.Open(t.Context(), sandbox.Auto); errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	a := newAgent(t, "shell", "python")
	require.Equal(t, "d/f has 1 line", a.call("file_create", args{"path": "d/f", "content": "one\n"}))
	require.Equal(t, "(no output)", a.call("shell", args{"command": "echo two >>d/f; echo three >d/g; ln -s /etc/shadow d/shadow"}))
	require.Equal(t, "1\tone\n2\ttwo", a.call("file_read", args{"path": "/workspace/d/f"}))
	require.Equal(t, `Error: "d/f" was changed by a program since; nothing was taken back`, a.call("file_undo", args{"path": "d/f"}))
	require.Equal(t, "d/g is now:\n1\t3", a.call("file_edit", args{"path": "d/g", "old": "three", "new": "3"}))
	require.Equal(t, "'3\\n'", a.call("python", args{"code": "open('d/g').read()"}))
	require.Contains(t, a.call("file_read", args{"path": "d/shadow"}), "Error: ")
	a.all.End("a")
	require.NoDirExists(t, a.dir)
}

// A file that may run may run after an edit, and after its undo.
func TestEditsKeepTheRightToRun(t *testing.T) {
	a := newAgent(t, "shell")
	sh := func(command string) string { return a.call("shell", args{"command": command}) }
	require.Equal(t, "one", sh("printf '#!/bin/sh\\necho one\\n' >run && chmod 755 run && ./run"))
	require.Contains(t, a.call("file_edit", args{"path": "run", "old": "one", "new": "two"}), "run is now:")
	require.Equal(t, "two", sh("./run"))
	require.Equal(t, "run has 2 lines again", a.call("file_undo", args{"path": "run"}))
	require.Equal(t, "one", sh("./run"))
}

// What file_create makes is the programs' own: they may let it run, and give it another time.
func TestCreatedFilesAreTheProgramsOwn(t *testing.T) {
	a := newAgent(t, "shell")
	require.Equal(t, "bin/run has 2 lines", a.call("file_create", args{"path": "bin/run", "content": "#!/bin/sh\necho one\n"}))
	require.Equal(t, "one", a.call("shell", args{"command": "chmod 755 bin bin/run && bin/run && touch -d 2020-01-01 bin bin/run"}))
}

// A file that is changed keeps its rights.
func TestRights(t *testing.T) {
	a := newAgent(t)
	for name, mode := range map[string]os.FileMode{"closed": 0o600, "program": 0o755, "plain": 0o644} {
		path := filepath.Join(a.dir, name)
		require.NoError(t, os.WriteFile(path, []byte("a"), mode))
		require.NoError(t, os.Chmod(path, mode))
		require.Contains(t, a.call("file_edit", args{"path": name, "old": "a", "new": "b"}), "is now")
		require.Contains(t, a.call("file_undo", args{"path": name}), "again")
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
	a.call("file_create", args{"path": "new/file", "content": "a"})
	info, err := os.Stat(filepath.Join(a.dir, "new", "file"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode())
}
