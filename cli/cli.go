// Package cli is agentfly's command line: the commands with their flags and arguments, the checks of both, and what each command prints.
// It is handed everything that it works with (Program) and imports nothing of the package agentfly, whose Main and Run are the entry
// points. It does not own the wiring: which tools, rewards, algorithms and engines there are is agentfly's, what a run does is
// orchestrator's, and the exit status is agentfly's too, which tells a wrong command line (UsageError) from work that failed.
package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// Program is what a command line works with.
type Program struct {
	Version     string                  // that the program tells
	Registries  orchestrator.Registries // what job files can name
	In          io.Reader
	Out, ErrOut io.Writer // as given: what models, tools and programs said is made safe for a terminal here
}

// Run runs a command line, args[0] of which is the program's own name. The error is that of the command, and nothing of it is printed.
func (p Program) Run(ctx context.Context, args []string) error {
	words := args[min(1, len(args)):]
	a := p.app(args)
	if n := len(words); n > 0 && words[n-1] == asking {
		return complete(a, words[:n-1], a.Writer)
	}
	n := lookUp(a, words)
	if err := n.check(); err != nil {
		return err
	}
	if n.asksHelp { // in the one form that lists what is below a command
		return a.RunContext(ctx, append(n.path, "--help"))
	}
	return a.RunContext(ctx, flagsFirst(a.Commands, args))
}

// UsageError is a wrong command line.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// app has the commands for a process with this command line.
func (p Program) app(line []string) *cli.App {
	e := &env{p.Version, p.Registries, p.In, p.Out, terminal.NewWriter(p.Out), terminal.NewWriter(p.ErrOut), p.ErrOut, line}
	a := &cli.App{
		Name: "agentfly", Usage: "train language-model agents with reinforcement learning", Version: e.version,
		Reader: e.in, Writer: e.out, ErrWriter: e.errOut, HideVersion: true, DisableSliceFlagSeparator: true,
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
		Flags:          []cli.Flag{&cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print the versions", DisableDefaultText: true}},
		Action: func(x *cli.Context) error {
			if x.Bool("version") {
				return e.printVersion(x)
			}
			return cli.ShowAppHelp(x)
		},
		Commands: e.commands(),
	}
	quiet(a.Commands)
	return a
}

// quiet makes every command report its errors through Program.Run alone.
func quiet(all []*cli.Command) {
	for _, c := range all {
		c.OnUsageError = onUsageError
		for _, f := range c.Flags {
			if b, ok := f.(*cli.BoolFlag); ok {
				b.DisableDefaultText = true // "(default: false)" says nothing
			}
		}
		c.Before = expandHome
		c.HideHelpCommand = len(c.Subcommands) == 0 // help could be the name of its argument; --help stays
		quiet(c.Subcommands)
	}
}

// expandHome puts the home folder in place of the ~ of flags that are paths. A shell does so in --output ~/x, and not in --output=~/x.
func expandHome(x *cli.Context) error {
	for _, f := range x.Command.Flags {
		path, ok := f.(*cli.StringFlag)
		if !ok || !path.TakesFile || !x.IsSet(path.Name) {
			continue
		}
		if err := x.Set(path.Name, home.Expand(x.String(path.Name))); err != nil {
			return err
		}
	}
	return nil
}

// env is what every command may use.
type env struct {
	version    string // of the program
	registries orchestrator.Registries
	in         io.Reader
	out        io.Writer // JSON lines and other output for programs
	text       io.Writer // the same output for people: what models, tools and files say is made safe for a terminal
	errOut     io.Writer // as text
	rawErr     io.Writer // errOut as it was given, for processes that make theirs safe themselves
	line       []string  // of the process, with the program's name
}

// canAsk tells whether somebody can answer a question.
func (e *env) canAsk() bool { return terminal.Is(e.in) && terminal.Is(e.rawErr) }

// ask asks on the terminal; without an answer it is no.
func (e *env) ask(question string) bool {
	fmt.Fprintf(e.errOut, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(e.in).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// setFlag is shared by the commands that read a job.
func setFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "set", Usage: "override a setting of the job: `KEY.PATH=VALUE`; may be repeated"}
}

// modelFlag is shared by the commands that read a model.
func modelFlag() cli.Flag {
	return &cli.StringFlag{Name: "model", TakesFile: true, Usage: "folder, .gguf, run folder or hub id `MODEL`"}
}

// commands are all commands, in the order of --help.
func (e *env) commands() []*cli.Command {
	return slices.Concat([]*cli.Command{initCommand{e}.command(), tryCommand{e}.command()}, runCommands{e}.all(), runsCommands{e}.all(), []*cli.Command{exportCommand{e}.command(), importCommand{e}.command(), viewCommand{e}.command(), chatCommand{e}.command(), serveCommand{e}.command(), gatewayCommand{e}.command(), jobCommands{e}.command(), toolCommands{e}.command(), rewardCommands{e}.command(), envCommands{e}.command(), buildCommand{e}.command()}, e.listings(), []*cli.Command{
		modelCommands{e}.command(), inspectCommands{e}.command(), e.resources(), e.control(),
		{Name: "doctor", Usage: "check this machine and name the remedies", Action: e.doctor},
		{Name: "completion", Usage: "print the completion script of a shell", ArgsUsage: "bash|zsh|fish", Action: e.completion},
		{Name: "version", Usage: "print the versions of agentfly, libtorch and CUDA", Action: e.printVersion},
	})
}

func one(x *cli.Context, what string) (string, error) {
	if x.NArg() != 1 {
		for _, set := range x.StringSlice("set") { // what should be its value may be the argument that is too much
			if set != "" && !strings.Contains(set, "=") {
				return "", usagef("--set %s has no value; write --set %s=VALUE", set, set)
			}
		}
		return "", usagef("%s takes one argument, %s; got %d", fullName(x), what, x.NArg())
	}
	return x.Args().First(), nil
}

// fullName is the command with the program and the commands above it.
func fullName(x *cli.Context) string {
	var names []string
	for _, above := range x.Lineage() {
		if above.Command != nil && above.Command.Name != "" && (len(names) == 0 || names[0] != above.Command.Name) {
			names = append([]string{above.Command.Name}, names...)
		}
	}
	return strings.Join(names, " ")
}

// contradicted refuses flags that are settings of a job too, and that --set gives another value.
func contradicted(x *cli.Context, sets []string, settings ...string) error {
	for _, set := range sets {
		key, value, _ := strings.Cut(set, "=")
		if !slices.Contains(settings, key) || !x.IsSet(key) {
			continue
		}
		if given := fmt.Sprint(x.Value(key)); given != home.Expand(value) {
			return usagef("--%s %s and --set %s contradict each other; give one of the two", key, given, set)
		}
	}
	return nil
}

func (e *env) load(x *cli.Context) (*job.Job, error) {
	path, err := one(x, "the job file")
	if err != nil {
		return nil, err
	}
	sets := x.StringSlice("set")
	if err := contradicted(x, sets, "seed", "output"); err != nil {
		return nil, err
	}
	if x.IsSet("seed") {
		sets = append(sets, fmt.Sprintf("seed=%d", x.Uint64("seed")))
	}
	j, err := job.LoadWith(path, job.Options{Set: sets, Agents: e.registries.Agents})
	if err == nil && x.String("output") != "" {
		j.Output = x.String("output")
	}
	return j, err
}

// print writes one JSON line.
func (e *env) print(v any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	data := line.Bytes()
	if terminal.Is(e.out) {
		data = terminal.JSON(data)
	}
	_, err := e.out.Write(data)
	return err
}
