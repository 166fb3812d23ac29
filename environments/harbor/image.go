package harbor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/sandbox"
)

// machine is what a program of a task sees: a folder for each folder of the root that the Dockerfile names.
type machine struct {
	main *boxed.Folder // that of the last WORKDIR
	all  map[string]*boxed.Folder
}

// home is the variable HOME of all programs.
const home = "HOME=/root"

// newMachine makes empty folders.
func (s *source) newMachine(t *task) (*machine, error) {
	m := &machine{all: map[string]*boxed.Folder{}}
	for _, top := range t.recipe.tops {
		f, err := s.folders.New()
		if err != nil {
			m.close()
			return nil, err
		}
		m.all[top] = f
	}
	begin, _, _ := strings.Cut(t.recipe.begin[1:], "/")
	m.main = m.all[begin]
	m.main.Begin = t.recipe.begin
	if begin != "workspace" {
		m.main.Inside = "/" + begin
	}
	p := &m.main.Base
	for _, top := range slices.Sorted(maps.Keys(m.all)) {
		if top != "workspace" {
			p.Mounts = append(p.Mounts, sandbox.Mount{Host: m.all[top].Dir(), Inside: "/" + top, Writable: true})
		}
	}
	p.Limits = s.params.Sandbox()
	if t.memory > 0 {
		p.Limits.Memory = min(p.Limits.Memory, int64(t.memory)<<20)
	}
	if t.disk > 0 {
		p.Limits.Disk = min(p.Limits.Disk, int64(t.disk)<<20)
	}
	p.Env = append([]string{home}, environ(t.recipe.env)...)
	p.Env = append(p.Env, environ(t.config.Environment.Env)...)
	return m, nil
}

func (m *machine) close() {
	if m == nil {
		return
	}
	for _, f := range m.all {
		f.Close()
	}
}

// own gives all files to the user of the programs.
func (m *machine) own() error {
	var errs []error
	for _, f := range m.all {
		errs = append(errs, f.Own())
	}
	return errors.Join(errs...)
}

// freeze prepares the machine to be copied; no program changes it any more.
func (m *machine) freeze() error {
	var errs []error
	for _, f := range m.all {
		errs = append(errs, f.Freeze())
	}
	return errors.Join(errs...)
}

// place is the folder of an absolute path inside, and the path in it.
func (m *machine) place(name string) (*boxed.Folder, string) {
	top, rest, _ := strings.Cut(strings.TrimPrefix(path.Clean(name), "/"), "/")
	return m.all[top], rest
}

// environ are NAME=value, sorted.
func environ(env map[string]string) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// image is what the Dockerfile of a task made, once for all episodes, and what its tests say of it before anybody worked on it.
type image struct {
	mu      sync.Mutex
	machine *machine
	refused error // a *environments.TaskError

	control sync.Mutex
	judged  *verdict // of the untouched machine; nil: not asked
}

// image is the image of a task, made at the first call.
func (s *source) image(ctx context.Context, t *task) (*image, error) {
	s.mu.Lock()
	i := s.images[t.name]
	if i == nil {
		i = &image{}
		s.images[t.name] = i
	}
	s.mu.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.machine != nil || i.refused != nil {
		return i, i.refused
	}
	m, err := s.build(ctx, t)
	if wrong := (*environments.TaskError)(nil); errors.As(err, &wrong) {
		i.refused = wrong
	}
	i.machine = m
	return i, err
}

// build does what the Dockerfile says. A line that cannot be done is the task's fault, unless it is the host that fails.
func (s *source) build(ctx context.Context, t *task) (_ *machine, err error) {
	m, err := s.newMachine(t)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	for _, step := range t.recipe.steps {
		if step.begin != "" {
			folder, name := m.place(step.begin)
			if err := folder.Root().MkdirAll(path.Join(".", name), 0o755); err != nil {
				return nil, blame(t, step, err)
			}
		}
		if err := m.put(ctx, step); ctx.Err() != nil {
			return nil, ctx.Err()
		} else if err != nil {
			return nil, blame(t, step, err)
		}
		if step.run == nil {
			continue
		}
		if err := m.own(); err != nil {
			return nil, err
		}
		p := m.main.Base
		p.Args = append([]string{"/bin/sh", "-c", `exec 2>&1; cd -- "$0" && exec "$@"`, cmp.Or(step.begin, "/")}, step.run...)
		p.Env = append([]string{home}, environ(step.env)...)
		limit := seconds(t.config.Environment.Build)
		p.Limits.Wall = boxed.Within(ctx, limit)
		p.Limits.CPU = boxed.Processor(limit)
		r, err := m.main.Run(ctx, p)
		if err != nil {
			return nil, err
		}
		if why := boxed.Failed(r, p.Limits.Wall); why != "" {
			if r.TimedOut && p.Limits.Wall < limit {
				return nil, fmt.Errorf("task %s: line %d of its Dockerfile ran longer than %s; give environment.reset_timeout more", t.name, step.line, p.Limits.Wall)
			}
			lines := strings.Split(strings.TrimSpace(string(r.Stdout)+string(r.Stderr)), "\n")
			if m.main.Full(r) {
				return nil, fmt.Errorf("task %s: line %d of its Dockerfile: the disk of this machine is full: %s", t.name, step.line, wording.Clip(lines[len(lines)-1], 160))
			}
			return nil, environments.WrongTask("%v", refusal(step.line, step.text, fmt.Sprintf("it fails in the sandbox, which has no network and no root (%s: %s)", why, wording.Clip(lines[len(lines)-1], 160))))
		}
	}
	if err := m.freeze(); err != nil {
		return nil, err
	}
	return m, nil
}

// put does a COPY.
func (m *machine) put(ctx context.Context, s step) error {
	for _, from := range s.copies {
		source, err := os.Stat(from)
		if err != nil {
			return err
		}
		folder, name := m.place(s.to)
		root, name := folder.Root(), path.Join(".", name)
		target, err := root.Stat(name)
		into := err == nil && target.IsDir()
		if into && !source.IsDir() {
			name = path.Join(name, s.name)
		}
		if err := boxed.Copy(ctx, from, root, name); err != nil {
			return err
		}
		if s.chmod == nil {
			continue
		}
		var copied []string // not the folder that was there
		if err := filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeSymlink != 0 || at == from && d.IsDir() && into && !s.fresh {
				return err
			}
			rel, err := filepath.Rel(from, at)
			copied = append(copied, path.Join(name, filepath.ToSlash(rel)))
			return err
		}); err != nil {
			return err
		}
		for _, name := range slices.Backward(copied) { // a folder may be closed after what is in it
			if err := root.Chmod(name, *s.chmod); err != nil {
				return err
			}
		}
	}
	return nil
}

// blame is the error of a line whose files cannot be made.
func blame(t *task, at step, err error) error {
	if boxed.HostFault(err) {
		return fmt.Errorf("task %s: line %d of its Dockerfile: %w", t.name, at.line, err)
	}
	return environments.WrongTask("%v", refusal(at.line, at.text, err.Error()))
}

// copy makes a machine with the files of an image.
func (s *source) copy(ctx context.Context, t *task, from *machine) (*machine, error) {
	m, err := s.newMachine(t)
	if err != nil {
		return nil, err
	}
	for top, f := range m.all {
		if err := from.all[top].Clone(ctx, f); err != nil && ctx.Err() == nil {
			m.close()
			if boxed.HostFault(err) {
				return nil, fmt.Errorf("task %s: its files: %w", t.name, err)
			}
			inside := strings.NewReplacer(from.all[top].Dir(), "/"+top, f.Dir(), "/"+top)
			return nil, environments.WrongTask("its files: %s", inside.Replace(err.Error()))
		}
	}
	if err := cmp.Or(m.own(), ctx.Err()); err != nil { // nobody takes what ctx ended
		m.close()
		return nil, err
	}
	return m, nil
}
