package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// runs are the run folders below a folder, opened when somebody looks at them.
type runs struct {
	ctx    context.Context //nolint:containedctx // of the server: it ends what follows the runs
	dir    string
	decode Decode

	mu      sync.Mutex // not held while a store is read
	open    map[string]*run
	opening map[string]func() (*run, error) // by name: who asks for a run while it is opened waits for it
	closed  bool

	bell   sync.Mutex
	change chan struct{} // is closed at the next change
}

// mostRuns is how many runs of a folder are listed.
const mostRuns = 1000

func openRuns(ctx context.Context, dir string, decode Decode) (*runs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	r := &runs{ctx: ctx, dir: dir, decode: decode, open: map[string]*run{}, opening: map[string]func() (*run, error){}, change: make(chan struct{})}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("view: %s is no folder; name a run folder, or a folder with run folders in it", dir)
	}
	return r, nil
}

// find are the names of the run folders: paths below the folder; "." is the folder itself.
func (r *runs) find() []string {
	var out []string
	top, err := filepath.EvalSymlinks(r.dir) // WalkDir follows no link, also where it begins
	if err != nil {
		return nil
	}
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error { // what cannot be read holds no run
		if err != nil {
			return fs.SkipDir
		}
		if !d.IsDir() {
			return nil
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return fs.SkipAll
		}
		if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "checkpoints" || strings.Count(name, string(filepath.Separator)) >= runfolder.Deepest) {
			return fs.SkipDir
		}
		if info, err := os.Stat(filepath.Join(path, store.File)); err == nil && info.Mode().IsRegular() {
			out = append(out, filepath.ToSlash(name))
			return fs.SkipDir
		}
		return nil
	})
	return out
}

// listed is a run of the list.
type listed struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	Steps  int     `json:"steps"`
	Reward num     `json:"reward"`
	Age    float64 `json:"age"` // seconds since something was written
	Error  string  `json:"error,omitempty"`
	Failed *string `json:"failed,omitempty"` // why it ended, where it failed

	last map[string]float64 // metrics of the last step
}

// list describes the runs, the one that was written last first, and says how many older ones it leaves out.
func (r *runs) list(ctx context.Context) (out []listed, left int, err error) {
	r.dropEnded()
	out = []listed{}
	for _, name := range r.find() {
		l := listed{Name: name, Title: name, Reward: num(math.NaN())}
		if name == "." {
			l.Title = filepath.Base(r.dir)
		}
		file := filepath.Join(r.dir, filepath.FromSlash(name), store.File)
		l.Age = math.Inf(1)
		for _, path := range []string{file, file + "-wal"} {
			if info, err := os.Stat(path); err == nil && (path == file || info.Size() > 0) { // who only reads makes an empty log
				l.Age = min(l.Age, math.Max(0, time.Since(info.ModTime()).Seconds()))
			}
		}
		if math.IsInf(l.Age, 1) {
			continue // it was deleted just now
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b listed) int { return cmp.Compare(a.Age, b.Age) })
	left = max(0, len(out)-mostRuns)
	out = out[:len(out)-left]
	for i := range out {
		l, dir := &out[i], filepath.Join(r.dir, filepath.FromSlash(out[i].Name))
		if err := l.read(ctx, filepath.Join(dir, store.File)); err != nil {
			l.Error = err.Error()
		}
		if now := readNow(dir, time.Now()); now.Ended == runfolder.EndedFailed {
			l.Failed = &now.Error
		}
	}
	return out, left, ctx.Err()
}

func (l *listed) read(ctx context.Context, file string) (err error) {
	db, err := store.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	steps, last, err := db.Progress(ctx)
	if err != nil {
		return err
	}
	l.Steps, l.last = steps, last
	if v, ok := last["reward/mean"]; ok {
		l.Reward = num(v)
	}
	return nil
}

// dropEnded closes the runs that found out that they are gone, so that they keep no file open and take no memory.
func (r *runs) dropEnded() {
	r.mu.Lock()
	open := slices.Collect(maps.Values(r.open))
	r.mu.Unlock()
	for _, x := range open {
		select {
		case <-x.over:
			r.drop(x)
		default:
		}
	}
}

// drop closes a run, once.
func (r *runs) drop(x *run) {
	r.mu.Lock()
	had := r.open[x.name] == x
	if had {
		delete(r.open, x.name)
	}
	r.mu.Unlock()
	if had {
		_ = x.close() // of what is not there any more nothing is lost
	}
}

// named is the name of a run in the list that is asked for by name. A folder that is a run itself is also meant by its title, and by none.
func (r *runs) named(name string) string {
	if name == "" || name == filepath.Base(r.dir) {
		if info, err := os.Stat(filepath.Join(r.dir, store.File)); err == nil && info.Mode().IsRegular() {
			return "."
		}
	}
	return name
}

// get is a run of the list, which is opened when somebody asks for it first. One that another run took the place of is read anew.
func (r *runs) get(name string) (*run, error) {
	name = r.named(name)
	if x := r.known(name); x != nil && x.stands() {
		return x, nil
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errMissing
	}
	begin := r.opening[name]
	if begin == nil {
		begin = sync.OnceValues(func() (*run, error) { return r.begin(name) })
		r.opening[name] = begin
	}
	r.mu.Unlock()
	return begin()
}

// known is a run that is open; nil: it is not.
func (r *runs) known(name string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[name]
}

// begin opens a run for all who wait for it.
func (r *runs) begin(name string) (*run, error) {
	x := r.known(name)
	if x != nil && !x.stands() {
		r.drop(x)
		r.ring()
		x = nil
	}
	var err error
	if x == nil { // else another one opened it meanwhile
		x, err = r.read(name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opening, name)
	switch {
	case err != nil:
		return nil, err
	case r.closed:
		return nil, errors.Join(errMissing, x.close())
	}
	r.open[name] = x
	return x, nil
}

// read opens the store of a run of the list.
func (r *runs) read(name string) (*run, error) {
	dir := filepath.Join(r.dir, filepath.FromSlash(name))
	path := filepath.Join(dir, store.File)
	if !slices.Contains(r.find(), name) {
		return nil, errMissing
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, errMissing
	}
	db, err := store.OpenReader(path)
	if err != nil {
		return nil, err
	}
	x := &run{name: name, db: db, path: path, file: file, changed: r.ring, decode: func() (func([]int32) string, bool) { return r.decode(dir) }}
	if err := x.start(r.ctx); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// news is closed at the next change of any run.
func (r *runs) news() <-chan struct{} {
	r.bell.Lock()
	defer r.bell.Unlock()
	return r.change
}

func (r *runs) ring() {
	r.bell.Lock()
	defer r.bell.Unlock()
	close(r.change)
	r.change = make(chan struct{})
}

// close closes what is open. The context that the runs were opened with has ended.
func (r *runs) close() error {
	r.mu.Lock()
	r.closed = true
	open, opening := r.open, slices.Collect(maps.Values(r.opening))
	r.open = map[string]*run{}
	r.mu.Unlock()
	for _, begin := range opening {
		_, _ = begin() // is over soon, and keeps nothing open
	}
	var errs []error
	for _, x := range open {
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

func sorted(set map[string]bool) []string {
	return append([]string{}, slices.Sorted(maps.Keys(set))...)
}

func sortEntries(all []shownEntry) {
	slices.SortFunc(all, func(a, b shownEntry) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), tree.Compare(trajectory.Branch(a.Branch), trajectory.Branch(b.Branch)), strings.Compare(a.ID, b.ID))
	})
}
