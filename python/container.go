package python

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
	"github.com/agentfly/agentfly/sandbox"
)

// Container says in which container a worker runs. The image needs a Python and nothing of AgentFly: the worker's text comes over the protocol.
type Container struct {
	Image   string   // that is on this machine already: nothing is fetched. Of apptainer a .sif file, or a folder that holds a root file system
	Engine  string   // podman, docker or apptainer; "" is apptainer for an image that is a path, otherwise the first of the others on PATH
	Network bool     // with the engine's network; without it the container has none
	Options []string // further options of the engine's command run, or exec of apptainer, such as --memory=2g
	Lock    string   // a folder that is there as long as this process, of sandbox.TempFolder: containers whose folder is gone are orphans
}

const apptainer = "apptainer"

var engines = []string{"podman", "docker", apptainer}

// OfPath says whether the image is a file or a folder, which apptainer runs, and no name.
func (c Container) OfPath() bool {
	named := strings.HasPrefix(c.Image, "/") || strings.HasPrefix(c.Image, "./") || strings.HasPrefix(c.Image, "../") || strings.HasSuffix(c.Image, ".sif")
	return c.Engine == apptainer || c.Engine == "" && named
}

const (
	lockLabel = "agentfly.lock"
	hostLabel = "agentfly.host" // where the lock's path is meant

	engineTime = 30 * time.Second // for a command of the engine that runs no program
	removeTime = 5 * time.Second
)

// packages say how the engines are installed.
var packages = map[string]string{"podman": "apt-get install podman", "docker": "apt-get install docker.io", apptainer: "see apptainer.org/docs/admin"}

// here names this machine, its start, and the file system that this process sees: a lock's path says nothing elsewhere.
func here() string {
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	mounts, _ := os.Readlink("/proc/self/ns/mnt")
	return strings.Join(strings.FieldsFunc(name+" "+string(boot)+" "+mounts, func(r rune) bool { return strings.ContainsRune(" \n:[]", r) }), "-")
}

// find says which engine runs, and that it has the image.
func (c Container) find(ctx context.Context) (engine string, err error) {
	if c.Engine != "" && !slices.Contains(engines, c.Engine) {
		return "", fmt.Errorf("there is no container engine %q; allowed: %s", c.Engine, strings.Join(engines, ", "))
	}
	wanted := engines[:2]
	if c.Engine != "" {
		wanted = []string{c.Engine}
	} else if c.OfPath() {
		wanted = engines[2:]
	}
	for _, name := range wanted {
		if engine, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("the container engine %s is not on PATH; install it: %s", strings.Join(wanted, " or "), packages[wanted[0]])
	}
	if wanted[0] == apptainer {
		if _, err := os.Stat(c.Image); err != nil {
			return "", fmt.Errorf("the image %q is not on this machine; it is a .sif file or a folder with a root file system: apptainer pull %s docker://NAME makes one", c.Image, c.Image)
		}
		return engine, nil
	}
	if _, err := ask(ctx, engine, "image", "inspect", "--format", "{{.Id}}", c.Image); err != nil {
		return "", fmt.Errorf("the image %q is not on this machine (%w); fetch it first: %s pull %s", c.Image, err, engine, c.Image)
	}
	return engine, nil
}

// ask runs a command of the engine and returns what it writes.
func ask(ctx context.Context, engine string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	var out, stderr bytes.Buffer
	c := exec.CommandContext(ctx, engine, args...)
	c.Stdout, c.Stderr, c.WaitDelay = &out, &stderr, time.Second
	if err := c.Run(); err != nil {
		return "", errors.New(cmp.Or(lastLine(stderr.String()), err.Error()))
	}
	return strings.TrimSpace(out.String()), nil
}

// containerLaunch is a worker of the image's interpreter. Modules that are named by import path are found in folder, which the container reads.
func containerLaunch(ctx context.Context, c Container, folder string, o Options) (launch, error) {
	engine, err := c.find(ctx)
	if err != nil {
		return launch{}, err
	}
	if filepath.Base(engine) == apptainer {
		return apptainerLaunch(c, engine, folder, o)
	}
	lock, err := filepath.Abs(c.Lock)
	if err != nil {
		return launch{}, err
	}
	args := []string{"run", "--rm", "--interactive", "--label=" + lockLabel + "=" + lock, "--label=" + hostLabel + "=" + here()}
	if !c.Network {
		args = append(args, "--network=none")
	}
	if folder != "" {
		args = append(args, "--volume="+folder+":"+folder+":ro")
	}
	args = append(args, c.Options...)
	l := launch{
		args: []string{cmp.Or(o.Interpreter, "python3"), "-c", bootstrap}, memory: o.Memory,
		container: &containerCommand{engine: engine, args: args, image: c.Image},
	}
	l.first, err = hello(o, nil)
	return l, err
}

// apptainerLaunch is a worker in a container of apptainer, which has no daemon: its processes are this machine's, and end as a plain worker's do.
func apptainerLaunch(c Container, engine, folder string, o Options) (l launch, err error) {
	args := []string{"exec", "--userns", "--containall"} // no rights, and none of this machine's files, processes and variables
	if !c.Network {
		args = append(args, "--net", "--network=none")
	}
	if folder != "" {
		args = append(args, "--bind="+folder+":"+folder+":ro")
	}
	l = launch{
		args: []string{cmp.Or(o.Interpreter, "python3"), "-c", bootstrap}, memory: o.Memory,
		container: &containerCommand{engine: engine, args: append(args, c.Options...), image: c.Image},
	}
	l.first, err = hello(o, nil)
	return l, err
}

// apptainerVariables is how names of variables begin that apptainer hands on.
const apptainerVariables = "APPTAINERENV_"

// containerCommand is what starts a container, up to its name and the program in it.
type containerCommand struct {
	engine, image string
	args          []string
}

// containerProcess is a worker in a container, with the engine's client in a process group of this machine.
type containerProcess struct {
	sandbox.Process
	engine, name string
}

func (c *containerCommand) start(args, env []string) (sandbox.Process, error) {
	if filepath.Base(c.engine) == apptainer {
		var given []string
		for _, one := range env {
			given = append(given, apptainerVariables+one)
		}
		return startPlain(slices.Concat([]string{c.engine}, c.args, []string{c.image}, args), given, apptainerVariables)
	}
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it does not fail
	name := "agentfly-" + hex.EncodeToString(random)
	all := append([]string{c.engine}, c.args...)
	all = append(all, "--name="+name)
	for _, one := range env {
		all = append(all, "--env="+one)
	}
	client, err := startPlain(append(append(all, c.image), args...), nil, "")
	if err != nil {
		return nil, err
	}
	return &containerProcess{Process: client, engine: c.engine, name: name}, nil
}

// Wait waits for the client and removes the container, which the end of a client that was killed does not. What stays is an orphan, which the next
// start collects.
func (p *containerProcess) Wait() error {
	err := p.Process.Wait()
	if err != nil {
		_ = removeContainer(context.Background(), p.engine, p.name)
	}
	return err
}

// removeContainer ends what runs in the container at once, where rm alone would ask it to end and wait ten seconds.
func removeContainer(ctx context.Context, engine, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	_, _ = ask(ctx, engine, "kill", name) // it may not run
	_, err := ask(ctx, engine, "rm", "--force", name)
	return err
}

// RemoveOrphans removes containers whose process was killed, and returns their names.
func (c Container) RemoveOrphans(ctx context.Context) (removed []string, err error) {
	engine, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	if filepath.Base(engine) == apptainer {
		return procgroup.Collect(), nil
	}
	sandbox.RemoveStale() // the folders by which orphans are known
	out, err := ask(ctx, engine, "ps", "--all", "--quiet", "--filter=label="+hostLabel+"="+here())
	if err != nil {
		return nil, fmt.Errorf("the containers of an earlier start cannot be listed: %w", err)
	}
	for _, id := range strings.Fields(out) {
		line, gone := ask(ctx, engine, "inspect", "--type=container", "--format", `{{.Name}} {{index .Config.Labels "`+lockLabel+`"}}`, id)
		if gone != nil {
			continue // another run's, which ended meanwhile
		}
		name, lock, _ := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.TrimPrefix(name, "/") // of docker
		if lock == "" {
			continue
		}
		if _, gone := os.Stat(lock); !errors.Is(gone, fs.ErrNotExist) {
			continue
		}
		if e := removeContainer(ctx, engine, name); e != nil {
			err = errors.Join(err, fmt.Errorf("the container %s of an earlier start cannot be removed: %w", name, e))
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
