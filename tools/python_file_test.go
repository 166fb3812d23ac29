package tools_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

func pythonSource(t *testing.T, text string, params map[string]any) (*tools.Registry, []string, error) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tools.py"), []byte(text), 0o600))
	var warnings []string
	r := resources.New(resources.Options{
		Resolve: func(p string) string { return filepath.Join(dir, p) },
		Warn:    func(text string) { warnings = append(warnings, text) },
	})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	c := tools.NewCatalog()
	c.AddSource("python", tools.PythonFile)
	all := map[string]any{"python": "tools.py", "workers": 2}
	for k, v := range params {
		all[k] = v
	}
	ref := tools.Ref{Source: "python", Params: all}
	made, err := c.Make(t.Context(), r, ref)
	if err != nil {
		return nil, warnings, err
	}
	registry := tools.NewRegistry(tools.Options{})
	for _, one := range made {
		require.NoError(t, registry.RegisterAs(one, ref))
	}
	return registry, warnings, nil
}

func invoke(t *testing.T, r *tools.Registry, id, name, arguments string) trajectory.ToolResult {
	t.Helper()
	return r.Invoke(t.Context(), id, trajectory.ToolCall{Name: name, Arguments: []byte(arguments)})
}

func TestPythonFile(t *testing.T) {
	r, warnings, err := pythonSource(t, `
import os
from agentfly import state, tool

@tool(timeout=20, max_tokens=50, terminal=True, idempotent=True, deterministic=True)
def shout(text: str):
    """Say it louder.

    Args:
        text: What to say.
    """
    return text.upper()

@tool(stateful=True, deterministic=True)
def count():
    state()["n"] = state().get("n", 0) + 1
    return {"observation": state()["n"], "n": state()["n"]}

@tool()
def draw():
    return {"observation": "drawn", "image": b"\x89PNG...", "pixels": 4}

@tool()
def value(kind: str):
    return {"none": None, "bool": True, "list": [1, "ü <b>"], "dict": {"z": 1, "a": {"y": [], "b": "é"}}, "float": 3.0, "half": ["\ud800"], "inner": {"observation": {"z": 1, "a": 2}, "n": 1}}[kind]

@tool(max_length=3)
def cut():
    return "üüüü"

@tool()
def crash():
    os._exit(1)

@tool(pool_size=4)
async def later(text: str):
    return text
`, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"tools.py: later: pool_size is not used: instances are made when a trajectory needs one"}, warnings)
	require.Equal(t, []string{"count", "crash", "cut", "draw", "later", "shout", "value"}, r.Names())
	require.True(t, r.KeepsState())
	specs := r.Specs()
	require.Zero(t, specs[4].Limits.Concurrency, "async calls run together")
	require.Equal(t, 2, specs[6].Limits.Concurrency)
	shout := specs[5]
	require.Equal(t, "Say it louder.", shout.Description)
	require.Equal(t, 50, shout.Limits.MaxTokens)
	require.Equal(t, "20s", shout.Limits.Timeout.String())
	require.True(t, specs[0].Stateful && specs[0].Replays && !shout.Replays, "with state, the same calls in the same order give the same: it can fork")
	require.True(t, shout.Terminal && shout.Idempotent && shout.Deterministic && !shout.Stateful)

	require.Equal(t, "HI", invoke(t, r, "a", "shout", `{"text": "hi"}`).Observation)
	for kind, want := range map[string]string{"none": "", "bool": "true", "list": `[1,"ü <b>"]`, "dict": `{"z":1,"a":{"y":[],"b":"é"}}`, "float": "3.0", "half": `["\ud800"]`, "inner": `{"z":1,"a":2}`} {
		require.Equal(t, want, invoke(t, r, "a", "value", `{"kind": "`+kind+`"}`).Observation, kind)
	}
	require.Equal(t, "üüü", invoke(t, r, "a", "cut", `{}`).Observation)
	require.Equal(t, "1", invoke(t, r, "a", "count", `{}`).Observation)
	require.Equal(t, "2", invoke(t, r, "a", "count", `{}`).Observation)
	require.Equal(t, "1", invoke(t, r, "b", "count", `{}`).Observation)
	r.End("a")
	require.Equal(t, "1", invoke(t, r, "a", "count", `{}`).Observation)

	draw, err := r.Lookup("draw")
	require.NoError(t, err)
	o, err := draw.Call(t.Context(), tools.Call{Trajectory: "b", Arguments: []byte(`{}`)})
	require.NoError(t, err)
	require.Equal(t, tools.Observation{Text: "drawn", Image: "data:image/png;base64,iVBORy4uLg==", Info: map[string]any{"pixels": json.Number("4")}}, o)

	failed := invoke(t, r, "a", "value", `{"kind": "what"}`)
	require.Equal(t, "Error: KeyError: 'what'", failed.Observation)
	require.True(t, failed.Failed)
	require.NotEqual(t, trajectory.CauseBroken, failed.Cause)
	broken := invoke(t, r, "a", "crash", `{}`)
	require.Equal(t, "Error: crash broke: its process ended", broken.Observation)
	require.Equal(t, trajectory.CauseBroken, broken.Cause)
}

// What the model reads of exceptions: one line without paths of this machine, however they are written. Output that is no UTF-8 is text, huge
// output is cut, and the tools go on.
func TestPythonObservationsOfFailures(t *testing.T) {
	r, _, err := pythonSource(t, `
import os, subprocess, sys
from agentfly import tool

@tool()
def fail(how: str, path: str = ""):
    if how == "open":
        open("/srv/some user's folder/my notes/x 1.txt")
    if how == "given":
        open(path)
    if how == "import":
        exec("from json import nope")
    if how == "program":
        subprocess.run(["/usr/bin/env", "false"], check=True)
    if how == "chain":
        try:
            open("/srv/a/b")
        except OSError as e:
            raise RuntimeError("reading /srv/a/b:\n\tfailed") from e
    if how == "syntax":
        exec(compile("x = = 1", "/srv/made/here.py", "exec"))
    if how == "exit":
        sys.exit("bye")
    if how == "bytes":
        return os.fsdecode(b"caf\xe9 \xff\x00")
    if how == "huge":
        return "head " + "x" * 1000000 + " tail"
    if how == "more":
        return "x" * (17 << 20)
    return "fine"
`, nil)
	require.NoError(t, err)
	for _, c := range [][2]string{
		{`{"how": "open"}`, "Error: FileNotFoundError: [Errno 2] No such file or directory: \"x 1.txt\""},
		{`{"how": "given", "path": "/srv/a b/c"}`, "Error: FileNotFoundError: [Errno 2] No such file or directory: '/srv/a b/c'"},
		{`{"how": "import"}`, "Error: ImportError: cannot import name 'nope' from 'json' (__init__.py)"},
		{`{"how": "program"}`, "Error: subprocess.CalledProcessError: Command '['env', 'false']' returned non-zero exit status 1."},
		{`{"how": "chain"}`, "Error: RuntimeError: reading b: failed"},
		{`{"how": "syntax"}`, "Error: SyntaxError: invalid syntax"},
		{`{"how": "exit"}`, "Error: SystemExit: bye"},
		{`{"how": "bytes"}`, "caf\uFFFD \uFFFD\x00"},
		{`{"how": "more"}`, "Error: ValueError: the function returned 17 MiB; the most is 16 MiB"},
		{`{"how": ""}`, "fine"},
	} {
		require.Equal(t, c[1], invoke(t, r, "a", "fail", c[0]).Observation)
	}
	require.Regexp(t, `^head x+\n\[\d+ characters left out\]\nx+ tail$`, invoke(t, r, "a", "fail", `{"how": "huge"}`).Observation)
}

func TestPythonFileErrors(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		params map[string]any
		want   string
	}{
		"no tool": {"x = 1\n", nil, "tools.py decorates no function with @tool"},
		"unknown": {"", map[string]any{"runtme": "cpython"}, `unknown field "runtme"`},
		"type":    {"", map[string]any{"workers": "two"}, "the parameter workers must be of type int"},
		"hint":    {"from agentfly import tool\n@tool()\ndef f(x: complex): pass\n", nil, "tools.py:2: f: the argument x: the type complex is not supported"},
		"missing": {"", map[string]any{"python": "none.py"}, "no such file"},
		"workers": {"", map[string]any{"workers": -1}, "workers and memory must be above 0"},
		"show":    {"", map[string]any{"show": []string{"."}}, "show names what a sandbox shows; write sandboxed: true with it"},
		"runtime": {"", map[string]any{"runtime": "pypy"}, `there is no runtime "pypy"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := pythonSource(t, c.text, c.params)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestPythonFileInTheSandbox(t *testing.T) {
	if _, err := sandbox.Open(t.Context(), sandbox.Auto); errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err.Error())
	}
	r, _, err := pythonSource(t, `
import os
from agentfly import tool

@tool()
def who():
    return {"observation": sorted(k for k in os.environ if k.startswith("AGENTFLY"))}
`, map[string]any{"sandboxed": true})
	require.NoError(t, err)
	t.Setenv("AGENTFLY_TEST_SECRET", "secret")
	require.Equal(t, "[]", invoke(t, r, "a", "who", `{}`).Observation)
}

// A file in the place of a name is the first that people write.
func TestAFileIsNoName(t *testing.T) {
	_, err := tools.NewCatalog().Make(t.Context(), resources.New(resources.Options{}), tools.Ref{Name: "tools.py"})
	require.EqualError(t, err, `tools: there is no tool "tools.py"; a file of tools is written {python: tools.py}`)
}

// An interpreter with a slash is a path of the job: it is found beside the job file.
func TestTheInterpreterBesideTheJob(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tools.py"), []byte("from agentfly import tool\n@tool\ndef one() -> int:\n    \"\"\"One.\"\"\"\n    return 1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python"), []byte("#!/bin/sh\nexec "+python+" \"$@\"\n"), 0o700))
	r := resources.New(resources.Options{Resolve: func(p string) string { return filepath.Join(dir, p) }})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	_, err = r.LoadPython(t.Context(), resources.PythonFile{Python: "tools.py", Interpreter: "./python"})
	require.NoError(t, err)
}
