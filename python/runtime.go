package python

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/python/gpython"
	"github.com/agentfly/agentfly/sandbox"
)

//go:embed worker.py hints.py agentfly/*.py
var sources embed.FS

// bootstrap reads its program from the first line: nothing lies in a file that a killed process could leave behind.
const bootstrap = `import os,json;lines=os.fdopen(os.dup(0),"rb");boot=json.loads(lines.readline());exec(compile(boot["worker"],"agentfly worker","exec"),{"__name__":"agentfly_worker","boot":boot,"lines":lines})`

// launch says how a worker is started, whatever its runtime.
type launch struct {
	args     []string         // the command line
	first    []byte           // a line that comes before all requests; nil: none
	readOnly []string         // what a sandbox must show
	box      *sandbox.Sandbox // nil: the worker is a plain process of this user
	memory   int64            // bytes; 0: no limit
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

// probe asks an interpreter where it lies. A python3 on PATH may be a script that starts another one slowly.
const probe = `import sys,json,site;print(json.dumps({"version":sys.version_info[:2],"executable":sys.executable,"folders":sorted({sys.prefix,sys.base_prefix,*sys.path}-{""})}))`

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
	c := exec.CommandContext(ctx, name, "-c", probe)
	c.Stderr, c.WaitDelay = &stderr, time.Second
	out, err := c.Output()
	if err != nil {
		return launch{}, fmt.Errorf("python: the interpreter %s does not run: %w %s", name, err, lastLine(stderr.String()))
	}
	var found struct {
		Version    [2]int   `json:"version"`
		Executable string   `json:"executable"`
		Folders    []string `json:"folders"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return launch{}, fmt.Errorf("python: the interpreter %s does not say where it lies: %w", name, err)
	}
	if found.Version[0] != 3 || found.Version[1] < 8 {
		return launch{}, fmt.Errorf("python: %s is Python %d.%d; 3.8 is the oldest that works: name another interpreter", name, found.Version[0], found.Version[1])
	}
	l := launch{args: []string{found.Executable, "-c", bootstrap}, box: o.Sandbox, memory: o.Memory}
	if l.first, err = hello(o.Memory); err != nil {
		return launch{}, err
	}
	for _, dir := range append(found.Folders, filepath.Dir(file)) {
		if info, err := os.Stat(dir); err == nil && (info.IsDir() || strings.HasSuffix(dir, ".zip")) && !system(dir) {
			l.readOnly = append(l.readOnly, dir)
		}
	}
	return l, nil
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

// hello is the first line: the worker's program and the module agentfly.
func hello(memory int64) ([]byte, error) {
	worker, err := sources.ReadFile("worker.py")
	if err != nil {
		return nil, err
	}
	hints, err := sources.ReadFile("hints.py")
	if err != nil {
		return nil, err
	}
	modules := map[string]string{"agentfly_hints": string(hints)}
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
	return json.Marshal(map[string]any{"worker": string(worker), "modules": modules, "memory": memory})
}

// builtIn is a worker of the interpreter in this program, which is started once more. The program must call gpython.Main first.
func builtIn(file string, o Options) (launch, error) {
	program, err := os.Executable()
	if err != nil {
		return launch{}, fmt.Errorf("python: runtime gpython starts this program once more, but %w; use runtime: cpython", err)
	}
	args := []string{program, gpython.Argument, strconv.FormatInt(o.Memory, 10)}
	return launch{args: args, box: o.Sandbox, memory: o.Memory, readOnly: []string{program, filepath.Dir(file)}}, nil
}

// start starts a worker's process. It lives until Kill or its own end.
func (l launch) start(ctx context.Context) (sandbox.Process, error) {
	if l.box == nil {
		return startPlain(l.args)
	}
	const years = 10 * 365 * 24 * time.Hour // a worker lives as long as the job
	limits := sandbox.Defaults
	limits.CPU, limits.Processes = years, 2*limits.Processes
	if l.memory > 0 {
		limits.Memory = l.memory
	}
	return l.box.Start(ctx, sandbox.Program{Args: l.args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/workspace"}, ReadOnly: l.readOnly, Limits: limits})
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
