package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
)

// escapes are what a model, a tool or a program may try on the terminal of the person who reads them.
const escapes = "\x1b[2J\x1b]52;c;cm0=\x07\x1b]8;;http://evil\x1b\\\u009b1m\u202e\r"

func safe(t *testing.T, text string) {
	t.Helper()
	require.NotEmpty(t, text)
	require.NotRegexp(t, "[\x01-\x08\x0b-\x1f\x7f\u0080-\u009f\u202e]", text)
}

// What a Python file says on standard error, raises and describes, and what a command line names, reaches the terminal spelt out.
func TestWhatProgramsSayIsSafe(t *testing.T) {
	run := func(args ...string) (out, errs string) {
		var o, e strings.Builder
		agentfly.Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(""), &o, &e)
		return o.String(), e.String()
	}
	_, errs := run("nothing" + escapes)
	safe(t, errs)
	_, errs = run("job", "validate", "nowhere"+escapes+".yaml")
	safe(t, errs)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	file := filepath.Join(t.TempDir(), "tools.py")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	quoted := `"\x1b[2J\x1b]52;c;cm0=\x07\x9b1m\u202e\r"`
	write("import sys\nfrom agentfly import tool\n\n@tool()\ndef f(n: int) -> str:\n    \"Counts \\x1b]52;c;cm0=\\x07.\"\n    sys.stderr.write(" + quoted + ")\n    raise ValueError(" + quoted + ")\n\ndef test_f():\n    raise ValueError(" + quoted + ")\n")
	out, _ := run("tools", "list", file)
	safe(t, out)
	out, errs = run("tools", "test", "--runtime", "cpython", file)
	safe(t, out+errs)
	write("raise ValueError(" + quoted + ")\n")
	_, errs = run("tools", "list", "--runtime", "cpython", file)
	safe(t, errs)
}
