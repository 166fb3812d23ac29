package python

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/python/gpython"
	"github.com/agentfly/agentfly/sandbox"
)

//go:embed worker.py hints.py files.py environment.py agentfly/*.py
var sources embed.FS

// bootstrap reads its program from the first line: nothing lies in a file that a killed process could leave behind.
const bootstrap = `import os,json;lines=os.fdopen(os.dup(0),"rb");boot=json.loads(lines.readline());exec(compile(boot["worker"],"agentfly worker","exec"),{"__name__":"agentfly_worker","boot":boot,"lines":lines})`

// lifeFile is the descriptor of a plain worker's pipe that ends with this process.
const lifeFile = 3

// launch says how a worker is started, whatever its runtime.
type launch struct {
	args     []string         // the command line
	first    []byte           // a line that comes before all requests; nil: none
	readOnly []string         // what a sandbox must show
	box      *sandbox.Sandbox // nil: the worker is a plain process of this user
	memory   int64            // bytes; 0: no limit
	env      []string         // NAME=value, beside what every worker gets
	alone    bool             // it answers one request after the other, and asks nothing

	container *containerCommand // nil: on this machine
}

// newLaunch chooses the runtime.
func newLaunch(ctx context.Context, file string, o Options) (launch, error) {
	switch o.Runtime {
	case CPython:
		return cpython(ctx, file, o)
	case GPython:
		return builtIn(file, o)
	case "", Auto:
		l, err := cpython(ctx, file, o)
		if errors.Is(err, errNoPython) {
			return builtIn(file, o)
		}
		return l, err
	}
	return launch{}, fmt.Errorf("python: there is no runtime %q; allowed: %s, %s, %s", o.Runtime, Auto, CPython, GPython)
}

var errNoPython = errors.New("python3 is not on PATH")

//go:embed probe.py
var probe string

// probed is what probe.py says.
type probed struct {
	Version    [2]int               `json:"version"`
	Executable string               `json:"executable"`
	Shown      []string             `json:"shown"`    // files and folders of the interpreter
	Siblings   map[string][2]string `json:"siblings"` // by module: its file, "" where there is none, and the folder of a package
}

// cpython is a worker of the interpreter's.
func cpython(ctx context.Context, file string, o Options) (launch, error) {
	name := o.Interpreter
	if name == "" {
		name = "python3"
		if _, err := exec.LookPath(name); err != nil {
			return launch{}, fmt.Errorf("python: %w; install it (apt-get install python3), name an interpreter, or use runtime: gpython", errNoPython)
		}
	}
	var stderr strings.Builder
	args := []string{"-I", "-c", probe} // outside every sandbox: nothing of the working folder, of PYTHONPATH or of the user's packages runs
	if o.Sandbox != nil && file != "" {
		args = append(args, file)
	}
	c := exec.CommandContext(ctx, name, args...)
	c.Stderr, c.WaitDelay = &stderr, time.Second
	out, err := c.Output()
	if late := ctx.Err(); late != nil { // what killed it is no fault of its own
		return launch{}, fmt.Errorf("python: the interpreter %s did not say in time where it lies: %w", name, late)
	}
	if err != nil {
		return launch{}, fmt.Errorf("python: the interpreter %s does not run: %w %s", name, err, lastLine(stderr.String()))
	}
	var found probed
	if err := json.Unmarshal(out, &found); err != nil {
		return launch{}, fmt.Errorf("python: the interpreter %s does not say where it lies: %w", name, err)
	}
	if found.Version[0] != 3 || found.Version[1] < 8 {
		return launch{}, fmt.Errorf("python: %s is Python %d.%d; 3.8 is the oldest that works: name another interpreter", name, found.Version[0], found.Version[1])
	}
	if err := enough(o.Memory, leastCPython); err != nil {
		return launch{}, err
	}
	l := launch{args: []string{found.Executable, "-c", bootstrap}, box: o.Sandbox, memory: o.Memory}
	if l.first, err = hello(o, found.Siblings); err != nil {
		return launch{}, err
	}
	if o.Sandbox == nil {
		return l, nil
	}
	l.readOnly = itself(file)
	for _, path := range found.Shown {
		if !system(path) {
			l.readOnly = append(l.readOnly, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found.Siblings)) {
		if path := found.Siblings[name][0]; path != "" {
			l.readOnly = append(l.readOnly, path)
		}
	}
	l.readOnly, err = show(l.readOnly, o.Show)
	return l, err
}

// itself is the file where other users may read it. A worker gets its text over the protocol, and programs of root run as nobody.
func itself(file string) []string {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		return []string{file}
	}
	return nil
}

// show adds what the user names to what a sandbox shows.
func show(shown, more []string) ([]string, error) {
	for _, path := range more {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("python: show: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("python: show: %w", err)
		}
		shown = append(shown, path)
	}
	return shown, nil
}

// system tells whether a folder belongs to the system, which every sandbox shows.
func system(dir string) bool {
	for _, top := range []string{"/usr", "/lib", "/lib64", "/bin"} {
		if dir == top || strings.HasPrefix(dir, top+"/") {
			return true
		}
	}
	return false
}

// moduleName is that of a file of the package: agentfly/core.py is agentfly.core.
func moduleName(path string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(path, ".py"), "/__init__")
	return strings.ReplaceAll(name, "/", ".")
}

// hello is the first line: the worker's program, its modules and the module agentfly, where the modules of the file's folder lie, which a
// sandbox does not list, and whether the worker is an environment's.
func hello(o Options, siblings map[string][2]string) ([]byte, error) {
	worker, err := sources.ReadFile("worker.py")
	if err != nil {
		return nil, err
	}
	modules := map[string]string{}
	names := []string{"hints", "files"}
	if o.environment {
		names = append(names, "environment")
	}
	for _, name := range names {
		text, err := sources.ReadFile(name + ".py")
		if err != nil {
			return nil, err
		}
		modules["agentfly_"+name] = string(text)
	}
	err = fs.WalkDir(sources, "agentfly", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		modules[moduleName(path)] = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	first := map[string]any{"worker": string(worker), "modules": modules, "memory": o.Memory, "siblings": siblings, "environment": o.environment}
	if o.Sandbox == nil && !o.container { // a sandbox ends with this process, and a container gets no descriptors
		first["life"] = lifeFile
	}
	return json.Marshal(first)
}

// builtIn is a worker of the interpreter in this program, which is started once more. The program must call gpython.Main first.
func builtIn(file string, o Options) (launch, error) {
	if err := enough(o.Memory, leastBuiltIn); err != nil {
		return launch{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return launch{}, fmt.Errorf("python: runtime gpython starts this program once more, but %w; use runtime: cpython", err)
	}
	l := launch{args: []string{program, gpython.Argument, strconv.FormatInt(o.Memory, 10)}, box: o.Sandbox, memory: o.Memory}
	l.readOnly, err = show(append(append(itself(file), program), gpython.Siblings(file)...), o.Show)
	return l, err
}

// Least memory of a worker, in bytes: below it, it does not load a file at all or now and then.
const (
	leastCPython = 64 << 20
	leastBuiltIn = 256 << 20
)

// enough refuses a worker's memory below the least. 0 is no limit.
func enough(memory, least int64) error {
	if memory == 0 || memory >= least {
		return nil
	}
	return fmt.Errorf("python: memory is %d MiB, in which a worker of this runtime does not start; give %d or more", memory>>20, least>>20)
}

// start starts a worker's process. It lives until Kill or its own end.
func (l launch) start(ctx context.Context) (sandbox.Process, error) {
	if l.container != nil {
		return l.container.start(l.args, l.env)
	}
	if l.box == nil {
		return startPlain(l.args, l.env, "")
	}
	const years = 10 * 365 * 24 * time.Hour // a worker lives as long as the job
	limits := sandbox.Defaults
	limits.CPU, limits.Processes = years, 2*limits.Processes
	if l.memory > 0 {
		limits.Memory = l.memory
	}
	return l.box.Start(ctx, sandbox.Program{Args: l.args, Env: append([]string{"PATH=" + sandbox.Path, "LANG=C.UTF-8", "HOME=/workspace"}, l.env...), ReadOnly: l.readOnly, Limits: limits})
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
