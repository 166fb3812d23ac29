package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// named is what the words of a command line name: the command, its flags and its arguments. The library that runs commands prints nothing and
// succeeds where a command below the first is unknown, so names are looked up here before it runs.
type named struct {
	path      []string       // of the command, from the program's name on
	commands  []*cli.Command // below the command; empty of one that does something
	command   *cli.Command   // nil: the program itself
	flags     []cli.Flag
	given     []string // names of flags
	arguments []string
	needs     string // the flag at the end whose value is missing; "": none
	ended     bool   // -- stood there: no flag follows
	asksHelp  bool   // the command help, or the flag
	err       error  // the first name that does not exist
}

// lookUp reads the words behind the program's name.
func lookUp(a *cli.App, words []string) *named {
	n := &named{path: []string{a.Name}, commands: a.Commands, flags: a.Flags}
	for i, word := range words {
		switch {
		case n.needs != "":
			n.value(n.needs, word)
			n.needs = ""
		case n.ended:
			n.arguments = append(n.arguments, word)
		case word == "--":
			n.ended = true
		case len(word) > 1 && word[0] == '-':
			n.flag(word, words[i+1:])
		case len(n.commands) > 0:
			n.below(a, word)
		default:
			n.arguments = append(n.arguments, word)
		}
	}
	return n
}

// check is what is wrong with the names; nil of a command line that can run.
func (n *named) check() error {
	switch {
	case n.err != nil:
		return n.err
	case n.needs != "":
		return usagef("--%s needs a value; see %s --help", n.needs, n)
	case n.command != nil && n.command.ArgsUsage == "" && len(n.arguments) > 0 && !n.asksHelp:
		if slices.ContainsFunc(n.command.Flags, func(f cli.Flag) bool { return f.Names()[0] == "run" }) && !strings.HasPrefix(n.arguments[0], "-") {
			return usagef("%s takes no arguments; got %q: write --run %s", n, n.arguments[0], wording.ShellWord(n.arguments[0]))
		}
		return usagef("%s takes no arguments; got %q", n, n.arguments[0])
	}
	return nil
}

func (n *named) String() string { return strings.Join(n.path, " ") }

func (n *named) fail(format string, args ...any) {
	if n.err == nil {
		n.err = usagef(format+"; see %s --help", append(args, n)...)
	}
}

func (n *named) flag(word string, rest []string) {
	name, value, valued := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if slices.Contains(cli.HelpFlag.Names(), name) {
		n.asksHelp = true
		return
	}
	i := slices.IndexFunc(n.flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		hint := ""
		if path := job.PathOf(name); path != "" && slices.ContainsFunc(n.flags, func(f cli.Flag) bool { return f.Names()[0] == "set" }) {
			if !valued {
				value = "VALUE"
				if len(rest) > 0 && isNumber(rest[0]) {
					value = rest[0]
				}
			}
			hint = " (write --set " + wording.ShellWord(path+"="+value) + ")"
		} else if near := wording.Nearest(name, longNames(n.flags)); near != "" {
			hint = " (did you mean --" + near + "?)"
		}
		n.fail("there is no flag --%s%s", name, hint)
		return
	}
	n.given = append(n.given, n.flags[i].Names()...)
	switch {
	case valued:
		n.value(name, value)
	case takesNext(n.flags[i:i+1], word):
		n.needs = name
	}
}

func isNumber(word string) bool {
	_, err := strconv.ParseFloat(word, 64)
	return err == nil
}

// value refuses an empty path, which a shell makes of a variable that is not set: it would stand for the flag's default.
func (n *named) value(name, value string) {
	i := slices.IndexFunc(n.flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if path, ok := n.flags[i].(*cli.StringFlag); ok && path.TakesFile && value == "" {
		n.fail("--%s is empty; give it a path, or leave it out", name)
	}
}

// below goes to a command below the present one.
func (n *named) below(a *cli.App, word string) {
	if word == "help" || word == "h" {
		n.asksHelp = true
		return
	}
	i := slices.IndexFunc(n.commands, func(c *cli.Command) bool { return c.HasName(word) })
	if i < 0 {
		n.fail("there is no command %q%s", strings.Join(append(slices.Clone(n.path[1:]), word), " "), n.hint(a, word))
		n.commands = nil // what follows is told nothing of
		return
	}
	n.command = n.commands[i]
	n.path, n.commands, n.flags = append(n.path, word), n.command.Subcommands, n.command.Flags
}

// hint names the command that a wrong word may stand for: the nearest one here, else those of that very name elsewhere, else those of the
// nearest name elsewhere, such as "job validate" for "vlaidate".
func (n *named) hint(a *cli.App, word string) string {
	if near := wording.Nearest(word, commandNames(n.commands)); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", strings.Join(append(slices.Clone(n.path[1:]), near), " "))
	}
	elsewhere := allOfName(a.Commands, word)
	if len(elsewhere) == 0 {
		names := commandNames(a.Commands)
		for _, c := range a.Commands {
			names = append(names, commandNames(c.Subcommands)...)
		}
		elsewhere = allOfName(a.Commands, wording.Nearest(word, names))
	}
	if len(elsewhere) == 0 {
		return ""
	}
	return " (there is " + strings.Join(elsewhere, ", ") + ")"
}

// allOfName are the commands of that name, and of the first level below.
func allOfName(all []*cli.Command, name string) (out []string) {
	for _, c := range all {
		if c.HasName(name) {
			out = append(out, fmt.Sprintf("%q", c.Name))
		}
		for _, below := range c.Subcommands {
			if below.HasName(name) {
				out = append(out, fmt.Sprintf("%q", c.Name+" "+below.Name))
			}
		}
	}
	return out
}

func commandNames(all []*cli.Command) (out []string) {
	for _, c := range all {
		if c.Name != "help" {
			out = append(out, c.Name)
		}
	}
	return out
}

// longNames are the names of flags that have more than one letter.
func longNames(flags []cli.Flag) (out []string) {
	for _, f := range slices.Concat(flags, []cli.Flag{cli.HelpFlag}) {
		for _, name := range f.Names() {
			if len(name) > 1 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// wrongValue is what the flag parser says of a value.
var wrongValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value ("(?:.*)") for (?:flag )?-([^:]+): (.*)$`)

// onUsageError says what is wrong with a flag's value in the words of a person.
func onUsageError(x *cli.Context, err error, _ bool) error {
	what := fullName(x)
	found := wrongValue.FindStringSubmatch(err.Error())
	if found == nil {
		return usagef("%v; see %s --help", err, what)
	}
	value, name, reason := found[1], found[2], found[3]
	if strings.Contains(reason, "range") {
		return usagef("--%s %s: out of range; see %s --help", name, value, what)
	}
	for _, f := range slices.Concat(x.App.Flags, x.Command.Flags) {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.IntFlag, *cli.Int64Flag:
			reason = "not a whole number"
		case *cli.UintFlag, *cli.Uint64Flag:
			reason = "not a whole number that is 0 or more"
		case *cli.Float64Flag:
			reason = "not a number"
		case *cli.BoolFlag:
			reason = "not true or false"
		}
	}
	return usagef("--%s %s: %s; see %s --help", name, value, reason, what)
}

// asking is the flag with which a shell asks what can follow; it stands last.
const asking = "--generate-bash-completion"

// complete writes what can follow the words, one a line. The last word, where it begins with a dash, is the one that is being written.
func complete(a *cli.App, words []string, out io.Writer) error {
	typed := ""
	if n := len(words); n > 0 && strings.HasPrefix(words[n-1], "-") {
		typed, words = words[n-1], words[:n-1]
	}
	n := lookUp(a, words)
	if n.err != nil || n.needs != "" || n.ended {
		return nil
	}
	var lines []string
	add := func(name, usage string) {
		if os.Getenv("_CLI_ZSH_AUTOCOMPLETE_HACK") != "" {
			name += ":" + usage
		}
		lines = append(lines, name)
	}
	switch {
	case typed != "":
		if takesNext(n.flags, typed) { // its value follows
			return nil
		}
		for _, f := range slices.Concat(n.flags, []cli.Flag{cli.HelpFlag}) {
			name, many := "", false
			for _, each := range f.Names() {
				if len(each) > 1 && name == "" {
					name = each
				}
			}
			_, many = f.(*cli.StringSliceFlag)
			if name == "" || !many && slices.Contains(n.given, name) || !strings.HasPrefix("--"+name, typed) {
				continue
			}
			usage := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				usage = d.GetUsage()
			}
			add("--"+name, usage)
		}
	case len(n.commands) > 0:
		for _, c := range n.commands {
			if c.Name != "help" {
				add(c.Name, c.Usage)
			}
		}
		add("help", "what the commands do")
	case n.command != nil && n.command.Name == "completion":
		for _, shell := range shells {
			add(shell, "")
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}
