package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst moves the flags of a command line before its arguments, because the flag parser stops at the first argument:
// `train JOB --resume` then means what it says. What follows -- stays as it is.
func flagsFirst(commands []*cli.Command, args []string) []string {
	if len(args) < 2 {
		return args
	}
	out := []string{args[0]}
	rest := args[1:]
	var flags []cli.Flag
	for len(rest) > 0 {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(rest[0]) })
		if i < 0 {
			break
		}
		out = append(out, rest[0])
		flags, commands, rest = commands[i].Flags, commands[i].Subcommands, rest[1:]
	}
	var before, after []string
	for i := 0; i < len(rest); i++ {
		arg := rest[i]
		switch {
		case arg == "--":
			after = append(after, rest[i:]...)
			i = len(rest)
		case len(arg) < 2 || arg[0] != '-':
			after = append(after, arg)
		default:
			before = append(before, arg)
			if takesNext(flags, arg) && i+1 < len(rest) {
				i++
				before = append(before, rest[i])
			}
		}
	}
	return append(append(out, before...), after...)
}

// takesNext tells whether a flag's value is the next argument.
func takesNext(flags []cli.Flag, arg string) bool {
	if arg == "" || arg[0] != '-' {
		return false
	}
	name := strings.TrimLeft(arg, "-")
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if ok && d.TakesValue() && slices.Contains(f.Names(), name) {
			return true
		}
	}
	return false
}
