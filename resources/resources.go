// Package resources holds what the tools and rewards of one job share: where its files lie, the sandbox, Python files, pools and the
// folder of caches. Each is opened at its first use and closed with the job. All methods are safe for concurrent use.
//
// It does not make tools or rewards: packages tools and rewards do.
package resources

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/internal/procgroup"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/sandbox"
)

// Options say what the job asks for. The zero value is what the command line uses without a job.
type Options struct {
	Resolve  func(path string) string // makes a path of the job file absolute; nil: relative to the working folder
	Sandbox  string                   // sandbox.Auto and so on; "" is auto
	Gradings int                      // trajectories that rewards run programs for at once; 0 is the number of processors
	Cache    string                   // folder of indexes and downloads; "" is agentfly in the user's cache folder
	Warn     func(text string)        // told once what a user should know; nil: nobody
	Log      io.Writer                // gets what workers print for people; nil: nobody. One write at a time
	Look     bool                     // the job is looked at only: nothing that it names is run or asked, see Run
}

// Resources are opened with New and must be closed.
type Resources struct {
	options  Options
	mu       sync.Mutex
	box      *sandbox.Sandbox
	gradings chan struct{} // places
	modules  map[moduleKey]*python.Module
	said     map[string]bool // warnings
	notRun   []string
	begins   []func(ctx context.Context) error
	closers  []func() error

	pools pool.Set

	closing sync.Mutex // held by Close
	sharing sync.Mutex // held while something shared is made
	shared  map[string]any
}

type moduleKey struct {
	file, runtime, interpreter string
	workers                    int
	memory                     int64
	boxed                      bool
	show                       string
}

// New opens nothing yet.
func New(o Options) *Resources {
	return &Resources{options: o, modules: map[moduleKey]*python.Module{}, said: map[string]bool{}, shared: map[string]any{}}
}

// Resolve finds a path of the job file. It stays relative to the working folder where the path of the job file is.
func (r *Resources) Resolve(path string) string {
	if r.options.Resolve == nil {
		return home.Expand(path)
	}
	return r.options.Resolve(path)
}

// Whole is Resolve's path made absolute, for what looks elsewhere for a name without a folder: ./NAME beside the job file stays a path.
func (r *Resources) Whole(path string) (string, error) { return filepath.Abs(r.Resolve(path)) }

// Program is a program that the job names: a path, which has a slash, is made Whole; a name without one stays, to be looked up on PATH.
func (r *Resources) Program(name string) (string, error) {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	return r.Whole(name)
}

// Warn tells the user something once.
func (r *Resources) Warn(text string) {
	if r.options.Warn != nil {
		r.options.Warn(text)
	}
}

// Cache is the folder of a cache, made where it is missing.
func (r *Resources) Cache(name string) (string, error) {
	dir := r.options.Cache
	if dir == "" {
		var err error
		if dir, err = home.Cache(); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// Sandbox is the job's. Its error says why there is none and what to do.
func (r *Resources) Sandbox(ctx context.Context) (*sandbox.Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.box != nil {
		return r.box, nil
	}
	kind := r.options.Sandbox
	if kind == "" {
		kind = sandbox.Auto
	}
	box, err := sandbox.Open(ctx, kind)
	if err == nil {
		r.box = box
	}
	return box, err
}

// Confined tells whether the job has a sandbox other than sandbox.None, also before it is opened.
func (r *Resources) Confined() bool { return r.options.Sandbox != sandbox.None }

// Python is the module of a file, loaded once for tools and rewards alike.
func (r *Resources) Python(ctx context.Context, file string, o python.Options) (*python.Module, error) {
	file = r.Resolve(file)
	key := moduleKey{file, o.Runtime, o.Interpreter, o.Workers, o.Memory, o.Sandbox != nil, strings.Join(o.Show, "\x00")}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.modules[key]; m != nil {
		return m, nil
	}
	m, err := python.Load(ctx, file, o)
	if err != nil {
		return nil, err
	}
	r.modules[key] = m
	r.closers = append(r.closers, m.Close)
	return m, nil
}

// NotRunError says what a job that is only looked at would have run or asked.
type NotRunError struct{ What string }

func (e *NotRunError) Error() string { return "not checked: " + e.What }

// Run is called before anything that the job names is run or asked: a program, a Python file, a service. Where the job is only looked at its
// error is a *NotRunError with what, such as "the Python file x.py, which is not imported"; whoever makes something of it passes that on.
func (r *Resources) Run(what string) error {
	if !r.options.Look {
		return nil
	}
	what = strings.ReplaceAll(what, "\n", `\n`) // a line each
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.notRun, what) {
		r.notRun = append(r.notRun, what)
	}
	return &NotRunError{what}
}

// NotRun is what Run refused, in order.
func (r *Resources) NotRun() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notRun)
}

// Shared is what several tools of the job have in common, made by the first that asks for it. What make opens it closes with OnClose; it
// must not ask for something shared itself.
func (r *Resources) Shared(key string, make func() (any, error)) (any, error) {
	r.sharing.Lock()
	defer r.sharing.Unlock()
	if v, ok := r.shared[key]; ok {
		return v, nil
	}
	v, err := make()
	if err == nil {
		r.shared[key] = v
	}
	return v, err
}

// Pools are the job's pools. They are closed first of all: their members may need anything else.
func (r *Resources) Pools() *pool.Set { return &r.pools }

// OnBegin has Begin run f, which says whether what a tool or a reward needs of elsewhere is there.
func (r *Resources) OnBegin(f func(ctx context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begins = append(r.begins, f)
}

// Begin is called before the first rollout of a run, and not for a job that is only looked at. Its error, a line for each thing that is not
// there, ends the run.
func (r *Resources) Begin(ctx context.Context) error {
	r.collect()
	r.mu.Lock()
	begins := slices.Clone(r.begins)
	r.mu.Unlock()
	errs := make([]error, len(begins))
	var all sync.WaitGroup
	for i, f := range begins {
		all.Go(func() { errs[i] = f(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// collect removes what runs of this user left on this machine that were killed: processes of workers, folders for temporary files.
func (r *Resources) collect() {
	if killed := procgroup.Collect(); len(killed) > 0 {
		r.Warn("ended what a run left that was killed: " + wording.Clip(strings.Join(killed, ", "), 300))
	}
	sandbox.RemoveStale()
}

// OnClose runs f when the resources are closed, before what was opened earlier is closed.
func (r *Resources) OnClose(f func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, f)
}

// Close closes the pools, then what was opened, the last first. It may be called twice, and returns when all is closed.
func (r *Resources) Close() error {
	r.closing.Lock()
	defer r.closing.Unlock()
	r.mu.Lock()
	closers := r.closers
	r.closers = nil
	r.mu.Unlock()
	errs := []error{r.pools.Close()}
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i]())
	}
	return errors.Join(errs...)
}
