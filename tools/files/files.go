// Package files holds the tools that work on the files of a trajectory's workspace: create, read, edit, undo, list and grep. They run in
// this process, on a root that no link leads out of.
//
// It does not run programs (package tools/code does) or own the folder (package tools/workspace does).
package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/workspace"
)

// Limits of the tools.
const (
	maxFile    = 1 << 20  // bytes of a file that is read or written
	maxHistory = 100      // changes that can be undone
	maxUndo    = 16 << 20 // bytes of their texts
	maxEntries = 500      // of a list
	maxMatches = 100      // of grep
)

// Add adds the tools to a catalog.
func Add(c *tools.Catalog) error {
	return errors.Join(
		add(c, "file_create", "Creates a text file in the workspace.", create),
		add(c, "file_read", "Reads a text file of the workspace, with line numbers.", read),
		add(c, "file_edit", "Replaces a text that occurs exactly once in a file of the workspace.", edit),
		add(c, "file_undo", "Takes back the last change of a file by file_create or file_edit.", undo),
		add(c, "file_list", "Lists the files of the workspace with their sizes.", list),
		add(c, "file_grep", "Finds the lines of the workspace's files that match a regular expression.", grep),
	)
}

// add adds a tool whose arguments are a T.
func add[T any](c *tools.Catalog, name, description string, run func(ctx context.Context, w *folder, args T) (string, error)) error {
	return c.Add(name, description, func(_ context.Context, r *resources.Resources, params map[string]any) ([]tools.Tool, error) {
		if err := resources.Decode(params, &struct{}{}); err != nil {
			return nil, err
		}
		schema, err := tools.SchemaOf[T]()
		if err != nil {
			return nil, err
		}
		parameters, err := json.Marshal(schema)
		if err != nil {
			return nil, err
		}
		spaces, err := workspace.Of(r)
		if err != nil {
			return nil, err
		}
		spec := tools.Spec{Name: name, Description: description, Parameters: parameters, Stateful: true, Replays: true}
		return []tools.Tool{&tool[T]{spec, spaces, run}}, nil
	})
}

type tool[T any] struct {
	spec   tools.Spec
	spaces *workspace.Workspaces
	run    func(ctx context.Context, w *folder, args T) (string, error)
}

func (t *tool[T]) Spec() tools.Spec { return t.spec }

// End removes the trajectory's workspace.
func (t *tool[T]) End(trajectory string) { t.spaces.End(trajectory) }

func (t *tool[T]) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var args T
	if err := tools.ReadArguments(c.Arguments, &args); err != nil {
		return tools.Observation{}, err
	}
	w, err := t.spaces.Get(c.Trajectory)
	if err != nil {
		return tools.Observation{}, &tools.BrokenError{Text: "there is no workspace"}
	}
	attached, err := w.Attach("files", func() (io.Closer, error) { return &folder{w: w, root: w.Root()}, nil })
	if err != nil {
		return tools.Observation{}, err
	}
	f := attached.(*folder)
	f.mu.Lock() // calls of one turn run in parallel
	defer f.mu.Unlock()
	text, err := t.run(ctx, f, args)
	return tools.Observation{Text: text}, err
}

// folder is the workspace of one trajectory with its changes.
type folder struct {
	w    *workspace.Workspace
	root *os.Root

	mu      sync.Mutex
	history []change
}

// change is what a tool did to a file.
type change struct {
	name          string
	before, after string
	created       bool
}

// Close is there so that a folder can be attached to its workspace.
func (f *folder) Close() error { return nil }

// local is a path within the workspace, which programs see as /workspace. A relative one begins where scripts do.
func (f *folder) local(name string) (string, error) {
	inside := path.Join(f.w.Begin(), name)
	if strings.HasPrefix(name, "/") {
		if !strings.HasPrefix(name+"/", "/workspace/") {
			return "", fmt.Errorf("%q is outside; paths are relative to the workspace", name)
		}
		inside = path.Clean(strings.TrimPrefix(strings.TrimPrefix(name, "/workspace"), "/"))
	}
	if !fs.ValidPath(inside) || strings.ContainsRune(inside, 0) {
		return "", fmt.Errorf("%q is outside; paths are relative to the workspace", name)
	}
	return inside, nil
}

// shown is a path of local as an agent writes it.
func (f *folder) shown(name string) string {
	begin := f.w.Begin()
	if begin == "." {
		return path.Clean(name)
	}
	if rest, ok := strings.CutPrefix(name+"/", begin+"/"); ok {
		return path.Clean(rest)
	}
	return path.Join("/workspace", name)
}

// explain says what went wrong with a file, without host paths.
func (f *folder) explain(name string, err error) error {
	var errno syscall.Errno
	name = f.shown(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %q; file_list shows what there is", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be opened", name)
	case errors.As(err, &errno):
		return fmt.Errorf("%q: %w", name, errno)
	default: // os.Root has no error of its own for this
		return fmt.Errorf("%q leads out of the workspace", name)
	}
}

// open opens a regular file; anything else could block or be endless.
func (f *folder) open(name string, flags int) (*os.File, error) {
	file, err := f.root.OpenFile(name, flags|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, f.explain(name, err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = f.explain(name, err)
	case info.IsDir():
		err = fmt.Errorf("%q is a folder", f.shown(name))
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%q is not a file", f.shown(name))
	case info.Size() > maxFile:
		err = fmt.Errorf("%q has %d bytes; at most %d can be read, use a program for it", f.shown(name), info.Size(), maxFile)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func (f *folder) read(name string) (string, error) {
	file, err := f.open(name, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return "", f.explain(name, err)
	case len(text) > maxFile:
		return "", fmt.Errorf("%q has more than %d bytes", f.shown(name), maxFile)
	case strings.ContainsRune(string(text[:min(len(text), 8000)]), 0):
		return "", fmt.Errorf("%q is not a text file", f.shown(name))
	}
	return string(text), nil
}

// write writes a file whole, or leaves what it held before. Programs of the sandbox may be another user: the file is theirs.
func (f *folder) write(name, before, text string) error {
	switch used, err := f.w.Size(); {
	case len(text) > maxFile:
		return fmt.Errorf("the text has %d bytes; at most %d are allowed", len(text), maxFile)
	case err != nil || used+int64(len(text)) > f.w.Room():
		return fmt.Errorf("the workspace is full; at most %d bytes are allowed", f.w.Room())
	}
	for i := range name {
		if name[i] == '/' {
			err := f.root.Mkdir(name[:i], 0o777)
			if err == nil {
				f.w.Own(name[:i])
				err = f.root.Chmod(name[:i], 0o777)
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return f.explain(name[:i], err)
			}
		}
	}
	_, missing := f.root.Stat(name)
	file, err := f.open(name, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	f.w.Own(name)
	if errors.Is(missing, fs.ErrNotExist) { // one that was there keeps its rights
		err = file.Chmod(0o666)
	}
	if err == nil {
		if err = replace(file, text); err != nil {
			err = errors.Join(err, replace(file, before)) // whose room the file still has
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return f.explain(name, err)
	}
	return nil
}

// replace writes over what a file holds, and gives room back only after that.
func replace(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	if err == nil {
		err = file.Truncate(int64(len(text)))
	}
	return err
}

// change writes a file and remembers what it was.
func (f *folder) change(c change) error {
	if err := f.write(c.name, c.before, c.after); err != nil {
		if c.created {
			_ = f.root.Remove(c.name)
		}
		return err
	}
	f.remember(c)
	return nil
}

// remember keeps a change for file_undo; the oldest ones make room.
func (f *folder) remember(c change) {
	f.history = append(f.history, c)
	held, keep := 0, len(f.history)
	for keep > 0 && len(f.history)-keep < maxHistory {
		held += len(f.history[keep-1].before) + len(f.history[keep-1].after)
		if held > maxUndo {
			break
		}
		keep--
	}
	f.history = slices.Clone(f.history[keep:]) // a part of the old one would hold its texts
}
