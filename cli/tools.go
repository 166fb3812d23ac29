package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// toolCommands look at tools, call them and offer them to others.
type toolCommands struct{ *env }

// fileFlags say how a Python file runs.
func fileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "runtime", Usage: "of a Python file: `RUNTIME` auto, cpython or gpython"},
		&cli.BoolFlag{Name: "sandboxed", Usage: "a Python file runs in the sandbox"},
		&cli.StringSliceFlag{Name: "show", Usage: "a further `PATH` that a sandboxed file may read"},
	}
}

// ofFiles refuses what says how a Python file runs where none is named: nothing else is sandboxed by it.
func ofFiles(x *cli.Context) error {
	for _, flag := range fileFlags() {
		if name := flag.Names()[0]; x.IsSet(name) {
			return usagef("--%s is of a Python file, and none is named; leave it out, or name a file", name)
		}
	}
	return nil
}

func (c toolCommands) command() *cli.Command {
	file := fileFlags()
	return &cli.Command{Name: "tools", Usage: "look at tools, of the catalog or of a Python file", Subcommands: []*cli.Command{
		{Name: "list", Usage: "list the tools that job files can name, or what a file decorates", ArgsUsage: "[FILE]", Flags: file, Action: c.list},
		{Name: "schema", Usage: "print OpenAI's tools array of a file's tools, or of a tool of the catalog", ArgsUsage: "FILE|NAME", Flags: file, Action: c.schema},
		{Name: "call", Usage: "call a tool of the catalog, or of a file", ArgsUsage: "[FILE] NAME '{…}'", Flags: file, Action: c.call},
		{Name: "test", Usage: "run the functions test_NAME of a file", ArgsUsage: "FILE", Flags: file, Action: c.test},
		c.serveCommand(),
	}}
}

// isFile tells a Python file from a name of the catalog, which has no dot.
func isFile(arg string) bool { return filepath.Ext(arg) == ".py" }

// toolSet are the tools that a command line names, with what they share.
type toolSet struct {
	resources *resources.Resources
	module    *python.Module // of a file; nil otherwise
	tools     []tools.Tool
}

// newSet is a set without tools yet. What they share is the caller's to close.
func (c toolCommands) newSet() *toolSet {
	return &toolSet{resources: resources.New(resources.Options{Warn: func(text string) { fmt.Fprintln(c.errOut, "agentfly: "+text) }})}
}

// openOneFile opens the Python file that is the only argument, and refuses one that decorates nothing.
func (c toolCommands) openOneFile(x *cli.Context) (*toolSet, error) {
	if x.NArg() > 1 {
		return nil, usagef("%s takes at most one argument, a Python file; got %d", fullName(x), x.NArg())
	}
	file := x.Args().First()
	if !isFile(file) {
		return nil, usagef("%q is no Python file; its name must end in .py", file)
	}
	s, err := c.openTools(x, file)
	if err != nil {
		return nil, err
	}
	if len(s.module.Functions()) == 0 {
		return nil, errors.Join(usagef("%s decorates no function: write @tool() or @reward() above one, and from agentfly import tool, reward", file), s.resources.Close())
	}
	return s, nil
}

// openTools opens a file or a name. What is wrong with it is wrong input.
func (c toolCommands) openTools(x *cli.Context, what string) (*toolSet, error) {
	if _, err := os.Stat(what); isFile(what) && err != nil {
		return nil, usagef("the Python file %s cannot be read: %s; give its path", what, reason(err))
	}
	if !isFile(what) {
		if err := ofFiles(x); err != nil {
			return nil, err
		}
	}
	s := c.newSet()
	var err error
	if isFile(what) {
		err = c.openFile(x, what, s)
	} else {
		s.tools, err = c.registries.Tools.Make(x.Context, s.resources, tools.Ref{Name: what})
	}
	if err != nil {
		return nil, errors.Join(usagef("%v", err), s.resources.Close())
	}
	return s, nil
}

func (c toolCommands) openFile(x *cli.Context, file string, s *toolSet) (err error) {
	o := python.Options{Runtime: x.String("runtime"), Workers: 1, Stderr: c.errOut}
	if len(x.StringSlice("show")) > 0 && !x.Bool("sandboxed") {
		return errors.New("--show names what a sandbox shows; give --sandboxed with it")
	}
	if x.Bool("sandboxed") {
		for _, path := range x.StringSlice("show") {
			o.Show = append(o.Show, s.resources.Resolve(path))
		}
		if o.Sandbox, err = s.resources.Sandbox(x.Context); err != nil {
			return err
		}
	}
	if s.module, err = s.resources.Python(x.Context, file, o); err != nil {
		return err
	}
	for _, f := range s.module.Functions() {
		for _, w := range f.Warnings {
			s.resources.Warn(fmt.Sprintf("%s: %s: %s", filepath.Base(file), f.Name, w))
		}
	}
	s.tools = tools.PythonTools(s.module)
	return nil
}

func (c toolCommands) list(x *cli.Context) (err error) {
	if x.NArg() == 0 {
		if err := ofFiles(x); err != nil {
			return err
		}
		for _, name := range c.registries.Tools.Names() {
			if _, err := fmt.Fprintf(c.text, "%-16s %s\n", name, firstLine(c.registries.Tools.Description(name))); err != nil {
				return err
			}
		}
		return nil
	}
	s, err := c.openOneFile(x)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.resources.Close()) }()
	for _, f := range s.module.Functions() {
		if _, err := fmt.Fprintf(c.text, "%-7s %-16s %s\n", f.Kind, f.Name, firstLine(f.Description)); err != nil {
			return err
		}
	}
	return nil
}

// reason is what a system says of a file, without its name.
func reason(err error) string {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err.Error()
	}
	return err.Error()
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// anObject is what to write where a JSON object is asked for.
const anObject = `write an object such as {"name": "value"}, in single quotes`

func oneFile(x *cli.Context) (string, error) {
	file, err := one(x, "a Python file")
	if err == nil && !isFile(file) {
		err = usagef("%q is no Python file; its name must end in .py", file)
	}
	return file, err
}

func (c toolCommands) schema(x *cli.Context) (err error) {
	what, err := one(x, "a Python file or the name of a tool")
	if err != nil {
		return err
	}
	s, err := c.openTools(x, what)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.resources.Close()) }()
	specs := make([]tools.Spec, len(s.tools))
	for i, t := range s.tools {
		specs[i] = t.Spec()
	}
	data, err := tools.OpenAI(specs)
	if err != nil {
		return err
	}
	return c.print(json.RawMessage(data))
}

func (c toolCommands) call(x *cli.Context) (err error) {
	args := x.Args().Slice()
	if len(args) != 2 && (len(args) != 3 || !isFile(args[0])) {
		return usagef("agentfly tools call takes a tool's name and its arguments as a JSON object, and before them the Python file if it has one")
	}
	what, name, arguments := args[0], args[len(args)-2], args[len(args)-1]
	if !json.Valid([]byte(arguments)) {
		return usagef("the arguments %q are not JSON; %s", arguments, anObject)
	}
	s, err := c.openTools(x, what)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.resources.Close()) }()
	all := tools.NewRegistry(tools.Options{})
	if err := all.Register(s.tools...); err != nil {
		return err
	}
	if _, err := all.Lookup(name); err != nil {
		return usagef("%v", err)
	}
	const trajectoryID = "command-line"
	defer all.End(trajectoryID)
	r := all.Invoke(x.Context, trajectoryID, trajectory.ToolCall{Name: name, Arguments: json.RawMessage(arguments)})
	if !r.Failed {
		return c.print(map[string]string{"observation": r.Observation})
	}
	if err := c.print(map[string]string{"error": strings.TrimPrefix(r.Observation, "Error: ")}); err != nil {
		return err
	}
	return errors.New("tools: the call failed")
}

// test runs every test function of a file in turn.
func (c toolCommands) test(x *cli.Context) (err error) {
	file, err := oneFile(x)
	if err != nil {
		return err
	}
	s, err := c.openTools(x, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.resources.Close()) }()
	names := s.module.Tests()
	if len(names) == 0 {
		return usagef("%s has no function test_NAME to run", file)
	}
	failed := 0
	for _, name := range names {
		line := "ok   " + name
		if err := runTest(x.Context, s.module, name); err != nil {
			failed++
			line = "FAIL " + name + ": " + err.Error()
		}
		if _, err := fmt.Fprintln(c.text, line); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("tools: %d of %d tests of %s failed", failed, len(names), file)
	}
	return nil
}

// runTest names how a worker ended: what it says to a model is not enough here.
func runTest(ctx context.Context, m *python.Module, name string) error {
	err := m.RunTest(ctx, name)
	var broken *python.BrokenError
	if errors.As(err, &broken) && broken.Detail != "" {
		return fmt.Errorf("%w: %s", err, broken.Detail)
	}
	return err
}
