package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// buildCommand builds a user's Go program with the tags and the libraries that agentfly itself is built with.
type buildCommand struct{ *env }

// module is the path of the module that such a program imports.
const module = "github.com/agentfly/agentfly"

func (c buildCommand) command() *cli.Command {
	return &cli.Command{
		Name: "build", Usage: "build a Go program of yours with libtorch", ArgsUsage: "DIR [-- FLAG of go build …]", Action: c.build,
		Description: "The program is the whole command line with your parts in it. DIR is the folder of a main package whose main calls agentfly.Main, in a module that requires " + module + ".\n" +
			"libtorch and the C++ library are fetched and compiled at the first build; what stands behind -- goes to go build.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", TakesFile: true, Aliases: []string{"o"}, Usage: "the program's `FILE`; default is bin/ and the name of the folder"},
			&cli.BoolFlag{Name: "no-torch", Usage: "without libtorch: all but training and the local engine, and no C++ compiler is needed"},
		},
	}
}

func (c buildCommand) build(x *cli.Context) error {
	if x.NArg() == 0 {
		return usagef("agentfly build takes the folder of your program, such as ./mine")
	}
	dir, err := filepath.Abs(x.Args().First())
	if err != nil {
		return err
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "*.go")); len(found) == 0 { // the pattern is well formed
		return usagef("%s holds no Go files; name the folder of your main package", x.Args().First())
	}
	to := x.String("output")
	if to == "" {
		to = filepath.Join("bin", filepath.Base(dir))
	}
	out, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	if isFolder(out) {
		return usagef("--output %s is a folder; name the file of the program", to)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("build: go is not on PATH; install Go 1.26 or newer from https://go.dev/dl")
	}
	arguments := []string{"build", "-o", out}
	environment := append(os.Environ(), "CGO_ENABLED=0")
	if !x.Bool("no-torch") {
		flags, err := c.native(x.Context, dir)
		if err != nil {
			return err
		}
		arguments = append(arguments, "-tags", "torch")
		environment = append(os.Environ(), "CGO_ENABLED=1", "CGO_LDFLAGS="+flags)
	}
	further := x.Args().Tail()
	if len(further) > 0 && further[0] == "--" {
		further = further[1:]
	}
	if _, err := c.run(x.Context, dir, environment, "go", append(append(arguments, further...), ".")...); err != nil {
		return fmt.Errorf("build: %s did not build: %w", x.Args().First(), err)
	}
	p := c.page()
	p.line("built", "%s", to)
	return p.err
}

// native compiles the C++ library where it is not there yet, and returns the linker's flags.
func (c buildCommand) native(ctx context.Context, dir string) (flags string, err error) {
	source, err := c.run(ctx, dir, os.Environ(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", fmt.Errorf("build: the module of %s does not require %s: run go mod init and go get %s there: %w", dir, module, module, err)
	}
	script := filepath.Join(source, "scripts", "build_native.sh")
	if _, err := os.Stat(script); source == "" || err != nil {
		return "", fmt.Errorf("build: the source of %s is not on this machine; run go mod download %s in %s", module, module, dir)
	}
	// the script looks its own module up: settings of the user's module are not its
	folder, err := c.run(ctx, dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off"), "sh", script)
	if err != nil {
		return "", fmt.Errorf("build: the C++ library: %w; --no-torch builds without it", err)
	}
	flags, err = c.run(ctx, dir, os.Environ(), "sh", "-c", `. "$1/env.sh" && printf %s "$CGO_LDFLAGS"`, "sh", folder)
	if err != nil || flags == "" {
		return "", fmt.Errorf("build: %s/env.sh has no CGO_LDFLAGS; delete the folder, and it is made again (%v)", folder, err)
	}
	return flags, nil
}

// waitForBuild is how long an interrupted program may take to end.
const waitForBuild = 5 * time.Second

// run runs a program in a folder and returns what it printed. What it says on standard error goes to this program's.
func (c buildCommand) run(ctx context.Context, dir string, environment []string, name string, args ...string) (string, error) {
	var out bytes.Buffer
	p := exec.CommandContext(ctx, name, args...)
	p.Dir, p.Env, p.Stdout, p.Stderr = dir, environment, &out, io.Writer(c.errOut)
	p.Cancel = func() error { return p.Process.Signal(os.Interrupt) } // go removes what it was writing
	p.WaitDelay = waitForBuild
	err := p.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return strings.TrimSpace(out.String()), err
}
