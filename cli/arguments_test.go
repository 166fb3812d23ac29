package agentfly

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlagsMayFollowTheArguments(t *testing.T) {
	r, err := registries(nil)
	require.NoError(t, err)
	commands := app(r, nil, io.Discard, io.Discard, io.Discard, nil).Commands
	for _, c := range []struct{ in, want string }{
		{"agentfly train JOB --output DIR --resume", "agentfly train --output DIR --resume JOB"},
		{"agentfly train --set a.b=1 JOB --set=c=2 --seed 3", "agentfly train --set a.b=1 --set=c=2 --seed 3 JOB"},
		{"agentfly tools call NAME {} -- --x", "agentfly tools call NAME {} -- --x"},
		{"agentfly inspect trajectory --run D --id X", "agentfly inspect trajectory --run D --id X"},
		{"agentfly", "agentfly"},
		{"agentfly train JOB --output", "agentfly train --output JOB"},
	} {
		require.Equal(t, c.want, strings.Join(flagsFirst(commands, strings.Fields(c.in)), " "))
	}
}

// run runs a command line in this process.
func run(t *testing.T, in string, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	status = Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

func TestExitStatuses(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("version: 1\nname: x\nmodle: {}\nrewards: [right_call]\n"), 0o600))
	for name, c := range map[string]struct {
		args   []string
		status int
		err    string // the beginning of standard error
	}{
		"no such command":   {[]string{"trian"}, 2, `agentfly: there is no command "trian"; see agentfly --help`},
		"no such flag":      {[]string{"train", "--reusme", "x"}, 2, "agentfly: flag provided but not defined: -reusme; see agentfly --help"},
		"no job":            {[]string{"train"}, 2, "agentfly: agentfly train takes one argument, the job file; got 0"},
		"no such file":      {[]string{"job", "validate", "nowhere.yaml"}, 2, "agentfly: nowhere.yaml: the job file cannot be read: no such file or directory"},
		"a broken job":      {[]string{"train", broken}, 2, "agentfly: " + broken + `:3:1: unknown key "modle" in the job`},
		"no such tool":      {[]string{"tools", "call", "calculater", "{}"}, 2, `agentfly: tools: there is no tool "calculater"`},
		"a call that fails": {[]string{"tools", "call", "calculator", `{"expression": "1/0"}`}, 1, "agentfly: tools: the call failed"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := run(t, "", c.args...)
			require.Equal(t, c.status, status, errOut)
			require.True(t, strings.HasPrefix(errOut, c.err), errOut)
		})
	}
}
