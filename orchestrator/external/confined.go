package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/scripts"
	"github.com/agentfly/agentfly/sandbox"
)

// Confined has a Command run its agents in a sandbox. What an agent finds there: its own files read-only under their paths, /workspace with its task and
// the place of its result, and the gateway at InsideURL. It reaches no other address, and sees neither the other files of the job nor other trajectories.
type Confined struct {
	Sandbox *sandbox.Sandbox     // bubblewrap
	Serve   func(l net.Listener) // answers agents with the gateway, until l is closed
	Show    []string             // more files and folders that agents read; absolute

	once  sync.Once
	shown []string
	wrong error
}

// insidePort is the gateway's in an agent's own network, where nobody else listens.
const insidePort = 8100

// InsideURL is the gateway's base URL for an agent in the sandbox.
var InsideURL = "http://127.0.0.1:" + strconv.Itoa(insidePort)

// confinedLimits are those of an agent with all that it starts. Its time is the trajectory's.
var confinedLimits = sandbox.Limits{
	CPU: 24 * time.Hour, Memory: 4 << 30, Reserved: 1 << 40, Processes: 512, Disk: 1 << 30, OpenFiles: 1024,
}

// begin is what the agent runs behind: it has one stream of output, as outside, and begins in the job's folder, where something of that is shown.
const begin = `exec 2>&1; [ -d "$1" ] && cd -- "$1"; shift; exec "$@"`

// runConfined is Run in the sandbox.
func (c *Command) runConfined(ctx context.Context, a Assignment, dir string) (output string, err error) {
	readable, err := c.Readable()
	if err != nil {
		return "", err
	}
	folder, err := filepath.Abs(c.Folder)
	if err != nil {
		return "", err
	}
	var env []string
	none := func(string) string { return "" }
	for k, v := range c.variables(a, "/workspace/"+taskName, "/workspace/"+endName, none) {
		if k != envRun { // a path of the machine; nothing outlives a sandbox
			env = append(env, k+"="+v)
		}
	}
	slices.Sort(env)
	p, err := c.Confined.Sandbox.Start(ctx, sandbox.Program{
		Args: append([]string{"/bin/sh", "-c", begin, "sh", folder}, c.Args...), Env: env,
		Workspace: dir, ReadOnly: readable, Limits: confinedLimits, Port: insidePort, Serve: c.Confined.Serve,
	})
	if err != nil {
		return "", fmt.Errorf("the agent cannot be started: %w", err)
	}
	_ = p.Stdin().Close()
	var said, errs string
	var both sync.WaitGroup
	both.Go(func() { said = tailOf(p.Stdout()) })
	both.Go(func() { errs = tailOf(p.Stderr()) }) // the sandbox's own
	err = p.Wait()
	both.Wait() // the pipes end with the tree
	_ = p.Kill()
	output = said + errs
	exit := (*sandbox.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return output, ctx.Err()
	case errors.As(err, &exit) && exit.Exceeded == "" && exit.Signal == "":
		return output, failedf(output, "ended with exit status %d", exit.Exit)
	case errors.As(err, &exit):
		return output, failedf(output, "was killed (%v)", exit)
	case err != nil:
		return output, failedf(output, "could not be started: %v", err)
	}
	return output, nil
}

// TryConfined runs a program that does nothing as an agent is run: what keeps agents from being started or served is known before the first of them.
func TryConfined(ctx context.Context, box *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p, err := box.Start(ctx, sandbox.Program{
		Args: []string{"/bin/sh", "-c", "exit 0"}, Limits: confinedLimits, Port: insidePort,
		Serve: func(l net.Listener) { _, _ = l.Accept() }, // it ends with the program
	})
	if err != nil {
		return err
	}
	_ = p.Stdin().Close()
	err = p.Wait()
	_ = p.Kill() // it has ended
	return err
}

// Readable are the files and folders of the machine that agents in the sandbox read, beside those of the system. What is not there, or what the sandbox's
// user may not read, is an error.
func (c *Command) Readable() ([]string, error) {
	of := c.Confined
	of.once.Do(func() {
		of.shown, of.wrong = c.own()
		for _, path := range append(of.Show, of.shown...) {
			if of.wrong == nil {
				of.wrong = readable(path)
			}
		}
		of.shown = append(of.shown, of.Show...)
	})
	return of.shown, of.wrong
}

// own are the files that the command names; of a program or a script that lies in a folder below the job's, that folder.
func (c *Command) own() (out []string, err error) {
	folder, err := filepath.Abs(c.Folder)
	if err != nil {
		return nil, err
	}
	for i, arg := range c.Args {
		if i == 0 && !strings.Contains(arg, "/") { // it is looked for on PATH
			continue
		}
		path := arg
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		info, err := os.Stat(path)
		if err != nil || info.IsDir() || within(path, "/usr") { // an argument that is no path, a folder, which Show may name, what is there already
			continue
		}
		runs := info.Mode().Perm()&0o111 != 0 || scripts.Is(path)
		if above := filepath.Dir(path); runs && within(above, folder) && above != folder {
			path = above
		}
		if !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

// within tells whether path is folder, or lies below it.
func within(path, folder string) bool {
	rest, err := filepath.Rel(folder, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// readable says why agents of a process of root's, which are the user nobody, could not read a path.
func readable(path string) error {
	info, err := os.Stat(path)
	switch mode := fs.FileMode(0o004); {
	case err != nil:
		return err
	case info.IsDir() && info.Mode().Perm()&(mode|0o001) != mode|0o001, info.Mode().Perm()&mode == 0:
		if os.Geteuid() == 0 {
			return fmt.Errorf("%s cannot be read by the user nobody (65534), who runs the agents of root in a sandbox; give others the right to read it", path)
		}
	}
	return nil
}
