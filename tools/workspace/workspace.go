// Package workspace gives every trajectory a folder of its own, which its tools share, and removes it with what was started in it when
// the trajectory is over. All methods are safe for concurrent use.
//
// It does not decide what is done in the folders: packages tools/code and tools/files do.
package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
)

// Workspaces are those of one job.
type Workspaces struct {
	folder *sandbox.Folder // of the folders
	base   string          // its path

	mu      sync.Mutex
	open    map[string]*Workspace
	spare   []*Workspace // made ahead
	ahead   int          // how many spares to keep
	prepare []func(w *Workspace) error
	failed  error // of a preparation: no more is made ahead
	filling bool
	made    int
	closed  bool
	all     sync.WaitGroup // of fill
}

// Of are the workspaces of a job, made at the first call.
func Of(r *resources.Resources) (*Workspaces, error) {
	v, err := r.Shared("workspaces", func() (any, error) {
		w, err := New()
		if err == nil {
			r.OnClose(w.Close)
		}
		return w, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*Workspaces), nil
}

// New returns workspaces in a new folder for temporary files.
func New() (*Workspaces, error) {
	folder, err := sandbox.TempFolder("workspaces")
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	base := folder.Path()
	if err := os.Chmod(base, 0o711); err != nil { // programs may be another user; the folders inside are private again
		return nil, fmt.Errorf("workspace: %w", err)
	}
	return &Workspaces{folder: folder, base: base, open: map[string]*Workspace{}}, nil
}

// Ahead keeps n workspaces ready for trajectories that begin, and runs prepare on each: it starts what the trajectory will need. Call it
// before the first Get.
func (s *Workspaces) Ahead(n int, prepare func(w *Workspace) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = max(s.ahead, n)
	s.prepare = append(s.prepare, prepare)
}

// Get is the workspace of a trajectory.
func (s *Workspaces) Get(trajectory string) (*Workspace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("workspace: the job has ended")
	}
	if w := s.open[trajectory]; w != nil {
		return w, nil
	}
	var w *Workspace
	if n := len(s.spare); n > 0 {
		w, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		var err error
		if w, err = s.new(); err != nil {
			return nil, err
		}
	}
	s.open[trajectory] = w
	if s.ahead > 0 && !s.filling && s.failed == nil {
		s.filling = true
		s.all.Go(s.fill)
	}
	return w, nil
}

// fill makes workspaces ahead, one at a time, until there are enough.
func (s *Workspaces) fill() {
	for {
		s.mu.Lock()
		if s.closed || s.failed != nil || len(s.spare) >= s.ahead {
			s.filling = false
			s.mu.Unlock()
			return
		}
		w, err := s.new()
		s.mu.Unlock()
		for _, prepare := range s.prepare {
			if err == nil {
				err = prepare(w)
			}
		}
		s.mu.Lock()
		closed := s.closed
		if err == nil && !closed {
			s.spare = append(s.spare, w)
		} else {
			s.failed = err
		}
		s.mu.Unlock()
		if w != nil && (err != nil || closed) {
			_ = w.close()
		}
	}
}

// new makes a folder; s.mu is held.
func (s *Workspaces) new() (*Workspace, error) {
	s.made++
	dir := filepath.Join(s.base, fmt.Sprint(s.made))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	return &Workspace{dir: dir, root: root, attached: map[string]io.Closer{}}, nil
}

// End closes what is attached to a trajectory's workspace and removes it.
func (s *Workspaces) End(trajectory string) {
	s.mu.Lock()
	w := s.open[trajectory]
	delete(s.open, trajectory)
	s.mu.Unlock()
	if w != nil {
		_ = w.close() // what is left is removed with the job
	}
}

// Close ends all workspaces.
func (s *Workspaces) Close() error {
	s.mu.Lock()
	s.closed = true
	all := s.spare
	for _, w := range s.open {
		all = append(all, w)
	}
	s.spare, s.open = nil, map[string]*Workspace{}
	s.mu.Unlock()
	s.all.Wait()
	var errs []error
	for _, w := range all {
		errs = append(errs, w.close())
	}
	return errors.Join(append(errs, s.folder.Close())...)
}

// Workspace is the folder of one trajectory.
type Workspace struct {
	dir  string
	root *os.Root

	mu       sync.Mutex
	attached map[string]io.Closer
	closed   bool
}

// Dir is the folder's path, for sandboxes. What reads or writes files on behalf of the model uses Root, which no link leads out of.
func (w *Workspace) Dir() string { return w.dir }

// Root is the folder.
func (w *Workspace) Root() *os.Root { return w.root }

// Size is the sum of the sizes of its files.
func (w *Workspace) Size() (int64, error) {
	var sum int64
	err := fs.WalkDir(w.root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // a program removed it, or keeps it to itself
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum, err
}

// Attach returns what is attached under a name, made at the first call. It is closed with the workspace.
func (w *Workspace) Attach(name string, make func() (io.Closer, error)) (io.Closer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errors.New("the trajectory is over")
	}
	if c := w.attached[name]; c != nil {
		return c, nil
	}
	c, err := make()
	if err == nil {
		w.attached[name] = c
	}
	return c, err
}

func (w *Workspace) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	var errs []error
	for _, c := range w.attached {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, w.root.Close(), sandbox.RemoveAll(w.dir))...)
}
