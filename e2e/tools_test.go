package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
)

func TestToolsCall(t *testing.T) {
	status, out, _ := command("", "tools", "call", "calculator", `{"expression": "347 + 589"}`)
	require.Zero(t, status)
	require.JSONEq(t, `{"observation": "936"}`, out)
	status, out, _ = command("", "tools", "call", "calculator", `{"expression": "1 / 0"}`)
	require.Equal(t, 1, status)
	require.Contains(t, out, `"error"`)
	status, _, errs := command("", "tools", "call", "calculater", `{}`)
	require.Equal(t, 2, status)
	require.Contains(t, errs, "calculator")
}

const arithmetic = "examples/python_tool/arithmetic.py"

func TestToolsOfAPythonFile(t *testing.T) {
	needPython(t)
	status, out, errs := command("", "tools", "list", arithmetic)
	require.Zero(t, status, errs)
	require.Equal(t, "tool    calculator       Computes an expression.\nreward  solved           0.8 for the right answer after the right calls, 0.2 for the right calls.\n", out)

	status, out, errs = command("", "tools", "schema", arithmetic)
	require.Zero(t, status, errs)
	require.JSONEq(t, `[{"type": "function", "function": {"name": "calculator", "description": "Computes an expression.", "parameters": {
		"type": "object", "properties": {"expression": {"type": "string", "description": "Numbers with + - * / between them."}},
		"required": ["expression"], "additionalProperties": false}}}]`, out)
	var array []any
	require.NoError(t, json.Unmarshal([]byte(out), &array))

	for _, c := range []struct {
		name, arguments, want string
		status                int
	}{
		{"calculator", `{"expression": "2*(3+4)"}`, `{"observation": "14"}`, 0},
		{"calculator", `{"expression": "x"}`, `{"error": "ValueError: write numbers with + - * / between them"}`, 1},
		{"calculator", `{"expresion": "1"}`, `{"error": "calculator: there is no argument \"expresion\" (did you mean \"expression\"?); the arguments are {\"expression\": string}"}`, 1},
	} {
		status, out, errs = command("", "tools", "call", arithmetic, c.name, c.arguments, "--runtime", "cpython")
		require.Equal(t, c.status, status, errs)
		require.JSONEq(t, c.want, out)
	}
	status, out, errs = command("", "tools", "test", arithmetic)
	require.Zero(t, status, errs)
	require.Equal(t, "ok   test_calculator\nok   test_calculator_refuses_names\nok   test_solved\n", out)
}

// No python3 is needed, and what gpython lacks is named.
func TestToolsWithoutPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, []byte("from agentfly import tool\n\n\n@tool()\ndef half(n: int = 3) -> str:\n    \"\"\"Halves.\n\n    Args:\n        n: A number.\n    \"\"\"\n    return \"%.2f\" % (n / 2)\n\n\ndef test_half():\n    assert half(1) == \"0.50\"\n"), 0o600))
	for _, runtime := range []string{"gpython", "auto"} {
		status, out, errs := command("", "tools", "schema", file, "--runtime", runtime)
		require.Zero(t, status, errs)
		require.JSONEq(t, `[{"type": "function", "function": {"name": "half", "description": "Halves.", "parameters": {"type": "object",
			"properties": {"n": {"type": "integer", "description": "A number.", "default": 3}}, "required": [], "additionalProperties": false}}}]`, out)
		status, out, errs = command("", "tools", "call", file, "half", `{"n": 5}`, "--runtime", runtime)
		require.Zero(t, status, errs)
		require.JSONEq(t, `{"observation": "2.50"}`, out)
		status, out, errs = command("", "tools", "test", file, "--runtime", runtime)
		require.Zero(t, status, errs)
		require.Equal(t, "ok   test_half\n", out)
	}
	require.NoError(t, os.WriteFile(file, []byte("import json\nx = f\"{1}\"\n"), 0o600))
	status, _, errs := command("", "tools", "list", file, "--runtime", "gpython")
	require.Equal(t, 2, status)
	require.Contains(t, errs, file+":1:8: ModuleNotFoundError: No module named 'json'; install it for CPython and use runtime: cpython: gpython has binascii,")
	require.Contains(t, errs, file+":2:5: gpython has no f-strings")
}

func TestToolsOfAWrongPythonFile(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	wrong := write("wrong.py", "from agentfly import tool\n@tool()\ndef f(x: complex): pass\n@tool()\ndef g(*x): pass\n")
	fails := write("fails.py", "def test_a():\n    assert 1 == 1\n\ndef test_b():\n    assert 1 == 2\n")
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string
		errs   []string
	}{
		"hints":      {[]string{"schema", wrong}, 2, "", []string{wrong + ":2: f: the argument x: the type complex is not supported", "agentfly: " + wrong + ":4: g: the argument x is positional"}},
		"missing":    {[]string{"schema", filepath.Join(dir, "none.py")}, 2, "", []string{"no such file"}},
		"no tool":    {[]string{"call", arithmetic, "calculater", "{}"}, 2, "", []string{`there is no tool "calculater"`, "calculator"}},
		"no JSON":    {[]string{"call", arithmetic, "calculator", "{"}, 2, "", []string{"are not JSON"}},
		"runtime":    {[]string{"schema", arithmetic, "--runtime", "pypy"}, 2, "", []string{`there is no runtime "pypy"`}},
		"no file":    {[]string{"test", "calculator"}, 2, "", []string{"must end in .py"}},
		"no tests":   {[]string{"test", write("empty.py", "")}, 2, "", []string{"has no function test_NAME"}},
		"failed":     {[]string{"test", fails}, 1, "ok   test_a\nFAIL test_b: AssertionError: line 5: assert 1 == 2\n", []string{"1 of 2 tests"}},
		"three args": {[]string{"call", "calculator", "calculator", "{}"}, 2, "", []string{"before them the Python file"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := command("", append([]string{"tools"}, c.args...)...)
			require.Equal(t, c.status, status, errs)
			require.Equal(t, c.out, out)
			for _, want := range c.errs {
				require.Contains(t, errs, want)
			}
		})
	}
}

// Whatever ends the program, nothing of a file's workers stays.
func TestWorkersEndWithTheProgram(t *testing.T) {
	needPython(t)
	dir := t.TempDir()
	file, note := filepath.Join(dir, "stays.py"), filepath.Join(dir, "pids")
	require.NoError(t, os.WriteFile(file, []byte(`
import os, subprocess
from agentfly import tool

@tool()
def stay(note: str):
    child = subprocess.Popen(["sleep", "3600"])
    with open(note + ".new", "w") as f:
        f.write("%d %d" % (os.getpid(), child.pid))
    os.rename(note + ".new", note)
    while True:
        pass
`), 0o600))
	arguments, err := json.Marshal(map[string]string{"note": note})
	require.NoError(t, err)
	for name, end := range map[string]os.Signal{"killed": os.Kill, "interrupted": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			p := process("tools", "call", file, "stay", string(arguments))
			require.NoError(t, p.Start())
			require.Eventually(t, func() bool { _, err := os.Stat(note); return err == nil }, time.Minute, 10*time.Millisecond)
			pids, err := os.ReadFile(note)
			require.NoError(t, err)
			require.NoError(t, os.Remove(note))
			require.NoError(t, p.Process.Signal(end))
			require.Error(t, p.Wait())
			for _, pid := range strings.Fields(string(pids)) {
				require.Eventually(t, func() bool {
					stat, err := os.ReadFile("/proc/" + pid + "/stat")
					return err != nil || strings.Contains(string(stat), ") Z ")
				}, 20*time.Second, 10*time.Millisecond, "process %s is left", pid)
			}
		})
	}
}

// The module that editors install has the program's version.
func TestTheModuleHasTheVersionOfTheProgram(t *testing.T) {
	for _, file := range []string{"python/pyproject.toml", "python/agentfly/__init__.py"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), `version`)
		require.Contains(t, string(text), ` = "`+agentfly.Version+`"`)
	}
}
