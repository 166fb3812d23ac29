// Package workspace gives every trajectory a folder of its own, which its tools share, and removes it with what was started in it when
// the trajectory is over. All methods are safe for concurrent use.
//
// It does not decide what is done in the folders: packages tools/code and tools/files do.
package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
)

// Workspaces are those of one job.
type Workspaces struct {
	folder *sandbox.Folder // of the folders
	base   string          // its path

	pools *pool.Set // of the job
	give  bool      // files to Nobody

	mu      sync.Mutex
	open    map[string]*Workspace
	ahead   int        // how many spares to keep
	spares  *pool.Pool // made ahead and prepared; nil before the first Get, or when there are to be none
	prepare []func(ctx context.Context, w *Workspace) error
	made    int
	closed  bool
}

// Of are the workspaces of a job, made at the first call.
func Of(r *resources.Resources) (*Workspaces, error) {
	v, err := r.Shared("workspaces", func() (any, error) {
		w, err := New()
		if err == nil {
			w.pools = r.Pools()
			w.give = os.Geteuid() == 0 && r.Confined()
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
	return &Workspaces{folder: folder, base: base, pools: &pool.Set{}, open: map[string]*Workspace{}}, nil
}

// Ahead keeps n workspaces ready for trajectories that begin, and runs prepare on each: it starts what the trajectory will need. Call it
// before the first Get.
func (s *Workspaces) Ahead(n int, prepare func(ctx context.Context, w *Workspace) error) {
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
	w, err := s.spare(trajectory)
	if err == nil && w == nil {
		w, err = s.new()
	}
	if err != nil {
		return nil, err
	}
	s.open[trajectory] = w
	return w, nil
}

// spare is a workspace that was made ahead; nil where none is ready, for which nobody waits. s.mu is held.
func (s *Workspaces) spare(trajectory string) (*Workspace, error) {
	if s.ahead == 0 {
		return nil, nil
	}
	if s.spares == nil {
		var err error
		s.spares, err = pool.New(pool.Options{
			Name: "workspaces", Make: s.makeAhead, Size: 1 << 30, Warm: s.ahead, Starting: 1, Uses: 1, Breaker: 1,
		})
		if err == nil {
			err = s.pools.Add(s.spares)
		}
		if err != nil {
			return nil, fmt.Errorf("workspace: %w", err)
		}
	}
	l, ok := s.spares.TryAcquire(pool.Owner{Name: trajectory})
	if !ok {
		return nil, nil
	}
	w := l.Member().(*Workspace)
	w.lease = l
	return w, nil
}

// makeAhead makes a workspace and prepares it.
func (s *Workspaces) makeAhead(ctx context.Context) (pool.Member, error) {
	s.mu.Lock()
	w, err := s.new()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, prepare := range s.prepare {
		if err := prepare(ctx, w); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
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
	return &Workspace{dir: dir, root: root, give: s.give, room: standardRoom, attached: map[string]io.Closer{}}, nil
}

// End closes what is attached to a trajectory's workspace and removes it.
func (s *Workspaces) End(trajectory string) {
	s.mu.Lock()
	w := s.open[trajectory]
	delete(s.open, trajectory)
	s.mu.Unlock()
	if w == nil {
		return
	}
	_ = w.Close() // what is left is removed with the job
	if w.lease != nil {
		w.lease.Return()
	}
}

// Close ends all workspaces.
func (s *Workspaces) Close() error {
	s.mu.Lock()
	s.closed = true
	open, spares := s.open, s.spares
	s.open = map[string]*Workspace{}
	s.mu.Unlock()
	var errs []error
	if spares != nil {
		errs = append(errs, spares.Close())
	}
	for _, w := range open {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, s.folder.Close())...)
}

// Workspace is the folder of one trajectory.
type Workspace struct {
	dir   string
	root  *os.Root
	give  bool        // files to Nobody
	lease *pool.Lease // of one that was made ahead

	mu       sync.Mutex
	room     int64
	begin    string // "": the folder itself
	attached map[string]io.Closer
	closed   bool
}

// standardRoom is that of a workspace in bytes, unless Bound sets another one.
const standardRoom = 64 << 20

// Dir is the folder's path, for sandboxes. What reads or writes files on behalf of the model uses Root, which no link leads out of.
func (w *Workspace) Dir() string { return w.dir }

// Root is the folder.
func (w *Workspace) Root() *os.Root { return w.root }

// Size is the sum of the sizes of its files. A file with several names counts once.
func (w *Workspace) Size() (int64, error) {
	var sum int64
	counted := map[inode]bool{} // of several names
	err := fs.WalkDir(w.root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // a program removed it, or keeps it to itself
		}
		info, err := d.Info()
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		n, several := linked(info)
		if !counted[n] {
			sum += info.Size()
		}
		if several {
			counted[n] = true
		}
		return nil
	})
	return sum, err
}

// Nobody is the user as whom programs of a sandbox run where this process is root's.
const Nobody = 65534

// Own gives a file or a folder that this process made in the workspace to the user as whom programs run. Where that is not possible, the sandbox
// starts no program: it gives the workspace to the same user.
func (w *Workspace) Own(name string) {
	if w.give {
		_ = w.root.Lchown(name, Nobody, Nobody)
	}
}

// Bound sets how many bytes tools may fill the folder with.
func (w *Workspace) Bound(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room = bytes
}

// Room is how many bytes tools may fill the folder with: 64 MiB, unless Bound set another number.
func (w *Workspace) Room() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room
}

// BeginIn sets the folder in the workspace from which relative paths of tools lead: that in which its scripts begin.
func (w *Workspace) BeginIn(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin = dir
}

// Begin is the folder in the workspace from which relative paths of tools lead: the workspace itself ("."), unless BeginIn set another one.
func (w *Workspace) Begin() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.begin, ".")
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

// Close ends what is attached and removes the folder. It may be called twice.
func (w *Workspace) Close() error {
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
