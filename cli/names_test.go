package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

// runLine runs a command line of a program that knows no tools but those of every program.
func runLine(line string) (out string, err error) {
	var o bytes.Buffer
	p := Program{Version: "1.2.3", In: strings.NewReader(""), Out: &o, ErrOut: io.Discard}
	p.Registries.Tools, p.Registries.Rewards, p.Registries.Algorithms = tools.NewCatalog(), rewards.Prebuilt(), algorithms.NewRegistry()
	err = p.Run(context.Background(), append([]string{"agentfly"}, strings.Fields(line)...))
	return o.String(), err
}

// A name that no command, flag or topic of help has is refused at every level, with the nearest name; nothing is printed beside that.
func TestUnknownNamesAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"trian":                         `there is no command "trian" (did you mean "train"?); see agentfly --help`,
		"job vlaidate x":                `there is no command "job vlaidate" (did you mean "job validate"?); see agentfly job --help`,
		"model list":                    `there is no command "model list" (there is "tools list", "rewards list", "env list", "agents list", "algorithms list", "engines list"); see agentfly model --help`,
		"tools lst":                     `there is no command "tools lst" (did you mean "tools list"?); see agentfly tools --help`,
		"inspect trajectry":             `there is no command "inspect trajectry" (did you mean "inspect trajectory"?); see agentfly inspect --help`,
		"inspect --help trajectry":      `there is no command "inspect trajectry" (did you mean "inspect trajectory"?); see agentfly inspect --help`,
		"validate x.yaml":               `there is no command "validate" (there is "job validate"); see agentfly --help`,
		"job train x.yaml":              `there is no command "job train" (there is "train"); see agentfly job --help`,
		"env zzzz":                      `there is no command "env zzzz"; see agentfly env --help`,
		"help trian":                    `there is no command "trian" (did you mean "train"?); see agentfly --help`,
		"job help vlaidate":             `there is no command "job vlaidate" (did you mean "job validate"?); see agentfly job --help`,
		"job vlaidate --run-code":       `there is no command "job vlaidate" (did you mean "job validate"?); see agentfly job --help`,
		"train --reusme x":              `there is no flag --reusme (did you mean --resume?); see agentfly train --help`,
		"train x --reusme=true":         `there is no flag --reusme (did you mean --resume?); see agentfly train --help`,
		"train -sede 3 x":               `there is no flag --sede (did you mean --seed?); see agentfly train --help`,
		"job validate --zzzz x":         `there is no flag --zzzz; see agentfly job validate --help`,
		"train x --steps 5":             `there is no flag --steps (write --set trainer.steps=5); see agentfly train --help`,
		"train x --group-size=8":        `there is no flag --group-size (write --set rollout.group_size=8); see agentfly train --help`,
		"eval --trainer.steps x":        `there is no flag --trainer.steps (write --set trainer.steps=VALUE); see agentfly eval --help`,
		"runs --steps 5":                `there is no flag --steps; see agentfly runs --help`,
		"train x --set trainer.steps 5": `--set trainer.steps has no value; write --set trainer.steps=VALUE`,
		"job validate --set seed":       `--set seed has no value; write --set seed=VALUE`,
		"job --st a":                    `there is no flag --st; see agentfly job --help`,
		"--verson":                      `there is no flag --verson (did you mean --version?); see agentfly --help`,
		"train --seed x job.yaml":       `--seed "x": not a whole number that is 0 or more; see agentfly train --help`,
		"train job.yaml --ranks x":      `--ranks "x": not a whole number; see agentfly train --help`,
		"train job.yaml --resume=yep":   `--resume "yep": not true or false; see agentfly train --help`,
		"train job.yaml --output":       `--output needs a value; see agentfly train --help`,
		"rollout x --steps 0":           `--steps is 0; allowed: 1 or more`,
		"rollout x --steps=-3":          `--steps is -3; allowed: 1 or more`,
		"version now":                   `agentfly version takes no arguments; got "now"`,
		"agents list x":                 `agentfly agents list takes no arguments; got "x"`,
		"inspect trajectory":            `agentfly inspect trajectory needs --run with a run folder`,
		"inspect tree":                  `agentfly inspect tree needs --run with a run folder`,
	} {
		out, err := runLine(line)
		var usage *UsageError
		require.True(t, errors.As(err, &usage), "%s: %v", line, err)
		require.Equal(t, want, err.Error(), line)
		require.Empty(t, out, line)
	}
}

// A path that is empty, as of a shell's variable that is not set, does not stand for the default.
func TestEmptyPathsAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"train job.yaml --output=":   "--output is empty; give it a path, or leave it out; see agentfly train --help",
		"train --output ~ job.yaml":  "--output is empty; give it a path, or leave it out; see agentfly train --help",
		"build -o ~":                 "--o is empty; give it a path, or leave it out; see agentfly build --help",
		"eval job.yaml --model ~":    "--model is empty; give it a path, or leave it out; see agentfly eval --help",
		"export run csv --out=":      "--out is empty; give it a path, or leave it out; see agentfly export --help",
		"gateway m --output ~":       "--output is empty; give it a path, or leave it out; see agentfly gateway --help",
		"inspect trajectory --run ~": "--run is empty; give it a path, or leave it out; see agentfly inspect trajectory --help",
		"model pull a/b --file ~":    "--file is empty; give it a path, or leave it out; see agentfly model pull --help",
		"replay run --output ~":      "--output is empty; give it a path, or leave it out; see agentfly replay --help",
		"import atif x --output ~":   "--output is empty; give it a path, or leave it out; see agentfly import --help",
	} {
		words := strings.Fields(line)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "~", "")
		}
		err := Program{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}.Run(context.Background(), append([]string{"agentfly"}, words...))
		var usage *UsageError
		require.True(t, errors.As(err, &usage), "%s: %v", line, err)
		require.Contains(t, err.Error(), want, line)
	}
}

func TestHelpAndVersionAreFlags(t *testing.T) {
	command, err := runLine("version")
	require.NoError(t, err)
	for _, line := range []string{"--version", "-v"} {
		out, err := runLine(line)
		require.NoError(t, err)
		require.Equal(t, command, out)
		require.True(t, strings.HasPrefix(out, "agentfly 1.2.3\n"), out)
	}
	for line, want := range map[string]string{"": "COMMANDS", "help": "COMMANDS", "--help": "COMMANDS", "-h": "COMMANDS", "job": "validate", "job --help": "validate", "help job": "validate", "job help": "validate", "job validate -h": "--run-code", "job help validate": "--run-code", "help job validate": "--run-code"} {
		out, err := runLine(line)
		require.NoError(t, err, line)
		require.Contains(t, out, want, line)
	}
}

// The shell asks what can follow; the flag with which it asks stands last, whatever stands before it.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"":                        "init try train ",
		"--":                      "--version --help",
		"job":                     "validate effective memory schema help",
		"job -":                   "--help",
		"train":                   "",
		"train --":                "--output --resume --overwrite --yes --seed --set --plain --log-format --view --ranks --help",
		"train --re":              "--resume",
		"train job.yaml --":       "--output --resume --overwrite --yes --seed --set --plain --log-format --view --ranks --help",
		"train --output":          "", // a folder follows
		"train --set a=b --ou":    "--output",
		"train -- --":             "", // arguments follow
		"job vlaidate --":         "",
		"completion":              "bash zsh fish",
		"job validate --run":      "--run-code",
		"help":                    "init try train ",
		"job help":                "validate effective memory schema help",
		"inspect trajectory --li": "--limit",
	} {
		out, err := runLine(line + " --generate-bash-completion")
		require.NoError(t, err, line)
		out = strings.ReplaceAll(strings.TrimSuffix(out, "\n"), "\n", " ")
		if strings.HasSuffix(want, " ") {
			require.True(t, strings.HasPrefix(out, want), "%s: %s", line, out)
			continue
		}
		require.Equal(t, want, out, line)
	}
}

// Help fits a terminal: an explanation goes on below where it began.
func TestHelpFitsATerminal(t *testing.T) {
	help, err := runLine("train --help")
	require.NoError(t, err)
	for _, width := range []int{80, 120} {
		for _, line := range strings.Split(fitted(help, width), "\n") {
			require.LessOrEqual(t, len([]rune(line)), width, line)
		}
	}
	require.Equal(t, help, fitted(help, 0))
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	require.Equal(t, words(help), words(fitted(help, 80)))
	require.Contains(t, fitted("   --aa  one two three four five six seven\n", 40), "   --aa  one two three four five six\n         seven\n")
	all, err := runLine("--help")
	require.NoError(t, err)
	for _, line := range strings.Split(all, "\n") {
		require.LessOrEqual(t, len(line), 80, "the list of commands needs no wrapping")
	}
}
