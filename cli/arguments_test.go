package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

func TestFlagsMayFollowTheArguments(t *testing.T) {
	commands := Program{Out: io.Discard, ErrOut: io.Discard}.app(nil).Commands
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

// A shell puts the home folder into --output ~/x, and not into --output=~/x: both mean it. A folder of that name is ./~.
func TestTheHomeFolderInFlags(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for given, want := range map[string]string{"~/x": filepath.Join(home, "x"), "~": home, "./~/x": "./~/x", "~x": "~x"} {
		for line, flag := range map[string]string{"train --output=": "output", "try --model=": "model", "init --model=": "model", "build -o=": "output", "inspect trajectory --run=": "run"} {
			a, got := Program{Out: io.Discard, ErrOut: io.Discard}.app(nil), ""
			words := strings.Fields(line + given)
			c := a.Command(words[0])
			for _, below := range c.Subcommands {
				if below.Name == words[1] {
					c = below
				}
			}
			c.Action = func(x *cli.Context) error {
				got = x.String(flag)
				return nil
			}
			require.NoError(t, a.Run(append([]string{"agentfly"}, words...)))
			require.Equal(t, want, got, line)
		}
	}
}

// Two values for one setting contradict each other, wherever they stand.
func TestASettingIsGivenOnce(t *testing.T) {
	t.Setenv("HOME", "/home/of")
	file := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\nname: j\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\n"), 0o600))
	for line, want := range map[string]string{
		"train --seed 5 --set seed=6":                                    "--seed 5 and --set seed=6 contradict each other; give one of the two",
		"train --set seed=6 --seed 5":                                    "--seed 5 and --set seed=6 contradict each other; give one of the two",
		"train --output a --set output=b":                                "--output a and --set output=b contradict each other; give one of the two",
		"train --seed 5 --set seed=5 --output=~/a --set output=~/a":      "",
		"train --seed 5 --output a --set trainer.steps=3 --set name=new": "",
	} {
		e := &env{}
		var err error
		a := Program{Out: io.Discard, ErrOut: io.Discard}.app(nil)
		a.Command("train").Action = func(x *cli.Context) error { _, err = e.load(x); return nil }
		require.NoError(t, a.Run(append(append([]string{"agentfly"}, strings.Fields(line)...), file)))
		if want == "" {
			require.NoError(t, err, line)
			continue
		}
		var usage *UsageError
		require.ErrorAs(t, err, &usage, line)
		require.EqualError(t, err, want)
	}
}

// What says how a Python file runs is refused where none is named: what is of the catalog would run outside the sandbox that was asked for.
func TestOptionsOfFilesNeedAFile(t *testing.T) {
	t.Parallel()
	for flag, lines := range map[string][][]string{
		"sandboxed": {{"tools", "call", "calculator", `{"expression": "1"}`, "--sandboxed"}, {"tools", "list", "--sandboxed"}, {"rewards", "list", "--sandboxed"}},
		"runtime":   {{"tools", "schema", "calculator", "--runtime", "cpython"}, {"rewards", "call", "final_answer", `{"final_response": "1", "answer": "1"}`, "--runtime", "cpython"}},
		"show":      {{"tools", "call", "calculator", `{"expression": "1"}`, "--show", "."}},
	} {
		for _, line := range lines {
			_, _, err := command(t, line...)
			var usage *UsageError
			require.ErrorAs(t, err, &usage, line)
			require.EqualError(t, err, "--"+flag+" is of a Python file, and none is named; leave it out, or name a file")
		}
	}
}
