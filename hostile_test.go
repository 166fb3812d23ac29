package agentfly

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// escapes are what a model, a tool or a program may try on the terminal of the person who reads them.
const escapes = "\x1b[2J\x1b]52;c;cm0=\x07\x1b]8;;http://evil\x1b\\\u009b1m\u202e\r"

// ours is what the view itself writes.
var ours = regexp.MustCompile("\x1b\\[(2|31|32|33|0)m")

func safe(t *testing.T, text string) {
	t.Helper()
	require.NotEmpty(t, text)
	require.NotRegexp(t, "[\x01-\x08\x0b-\x1f\x7f\u0080-\u009f\u202e]", ours.ReplaceAllString(text, ""))
}

func TestViewIsSafe(t *testing.T) {
	text := []string{escapes, "plain", "\x1b", "]52;c;cm0=\x07"} // a sequence may come in several tokens
	r := store.Record{Trajectory: &trajectory.Trajectory{ID: "train-0" + escapes, Samples: []*trajectory.Sample{{
		TokenIDs: []int32{0, 1, 2, 3}, ResponseMask: []bool{false, true, true, true}, SamplingLogprobs: []float32{0, 0, -0.5, -3},
	}}}}
	out := view(r, func(ids []int32) string { return text[ids[0]] })
	safe(t, out)
	require.Contains(t, out, `\x1b[2J\x1b]52;c;cm0=\x07`)
	require.Contains(t, out, "\x1b[32mplain\x1b[0m")
}

// What a Python file says on standard error, raises and describes, and what a command line names, reaches the terminal spelt out.
func TestWhatProgramsSayIsSafe(t *testing.T) {
	run := func(args ...string) (out, errs string) {
		var o, e strings.Builder
		Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(""), &o, &e)
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
