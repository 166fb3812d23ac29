package agentfly_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentfly/agentfly"
	"github.com/stretchr/testify/require"
)

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
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

// The module that editors install has the program's version.
func TestTheModuleHasTheVersionOfTheProgram(t *testing.T) {
	for _, file := range []string{"python/pyproject.toml", "python/agentfly/__init__.py"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), `version`)
		require.Contains(t, string(text), ` = "`+agentfly.Version+`"`)
	}
}
