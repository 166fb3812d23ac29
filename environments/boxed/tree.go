package boxed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of what is copied into a folder.
const (
	mostFiles = 100_000
	mostBytes = 4 << 30
)

// HostFault tells whether an error of a file says that the host is short of room, descriptors or memory, or that its disk fails. Such an error may be gone
// at the next try; any other one says what the file is.
func HostFault(err error) bool {
	for _, of := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.ESTALE,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// walk calls f for a file or a tree of the host, a folder before what is in it, with the path below it. It refuses what is too much to copy, and ends
// with ctx, between two files.
func walk(ctx context.Context, from string, f func(at, rel string, info fs.FileInfo) error) error {
	count, bytes := 0, int64(0)
	return filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if count, bytes = count+1, bytes+info.Size(); count > mostFiles || bytes > mostBytes {
			return fmt.Errorf("%s has more than %d files or %d bytes", from, mostFiles, int64(mostBytes))
		}
		return f(at, rel, info)
	})
}

// Copy copies a file or a tree of the host into a folder under a path of that folder, with the rights to run. Links are copied as they are where
// they stay in the tree, and refused else; special files are refused. It ends with ctx, between two files.
func Copy(ctx context.Context, from string, to *os.Root, name string) error {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	return walk(ctx, from, func(at, rel string, info fs.FileInfo) error {
		target := path.Join(name, filepath.ToSlash(rel))
		if target == "" {
			target = "."
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			return to.MkdirAll(target, 0o755)
		case mode&fs.ModeSymlink != 0:
			link, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if filepath.IsAbs(link) || !filepath.IsLocal(filepath.Join(filepath.Dir(rel), link)) {
				return fmt.Errorf("%s is a link to %s, out of the tree; put the file in its place", at, link)
			}
			return to.Symlink(link, target)
		case mode.IsRegular():
			return copyFile(at, to, target, 0o644|mode.Perm()&0o111)
		}
		return fmt.Errorf("%s is no file, no folder and no link", at)
	})
}

func copyFile(from string, to *os.Root, name string, mode fs.FileMode) error {
	if err := to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// open gives the owner the rights that a copy needs. closed tells that they were not there, and was are those before.
func open(name string) (was fs.FileMode, closed bool, _ error) {
	info, err := os.Lstat(name)
	if err != nil {
		return 0, false, err
	}
	need := fs.FileMode(0)
	switch {
	case info.IsDir():
		need = 0o700
	case info.Mode().IsRegular():
		need = 0o400
	}
	if info.Mode()&need == need {
		return info.Mode(), false, nil
	}
	return info.Mode(), true, os.Chmod(name, info.Mode()|need)
}

// Freeze prepares a folder, in which no program runs any more, for Clone. It opens what programs closed to their own user, as whom this process may run.
func (f *Folder) Freeze() error {
	f.closed = map[string]fs.FileMode{}
	return filepath.WalkDir(f.Dir(), func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		was, closed, err := open(name) // a folder is read after this
		if closed {
			f.closed[name] = was
		}
		return err
	})
}

// Clone copies a folder after Freeze into an empty one in which no program ran, with the rights and times that programs gave its files. Links are text:
// they are copied as they are, and never followed. Sockets, which nobody answers any more, are left out. It ends with ctx, between two files.
func (f *Folder) Clone(ctx context.Context, to *Folder) error {
	type made struct {
		name string
		info fs.FileInfo
		mode fs.FileMode
	}
	var folders []made
	finish := func(m made) error {
		if m.info.Mode()&fs.ModeSymlink == 0 {
			if err := os.Chmod(m.name, m.mode&(fs.ModePerm|fs.ModeSticky)); err != nil {
				return err
			}
		}
		at, err := unix.TimeToTimespec(m.info.ModTime())
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, m.name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err := walk(ctx, f.Dir(), func(from, rel string, info fs.FileInfo) error {
		// Every folder above name is one that this call made: no link is in the way.
		m := made{filepath.Join(to.Dir(), rel), info, info.Mode()}
		if was, ok := f.closed[from]; ok {
			m.mode = was
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			folders = append(folders, m)
			if rel == "." {
				return nil
			}
			return os.Mkdir(m.name, 0o700)
		case mode&fs.ModeSymlink != 0:
			link, err := os.Readlink(from)
			if err != nil {
				return err
			}
			if err := os.Symlink(link, m.name); err != nil {
				return err
			}
		case mode.IsRegular():
			if err := copyFile(from, to.Root(), filepath.ToSlash(rel), 0o600); err != nil {
				return err
			}
		case mode&fs.ModeNamedPipe != 0:
			if err := unix.Mkfifo(m.name, 0o600); err != nil {
				return err
			}
		case mode&fs.ModeSocket != 0:
			return nil
		default:
			return fmt.Errorf("%s is no file, no folder, no link and no pipe", from)
		}
		return finish(m)
	}); err != nil {
		return err
	}
	for _, m := range slices.Backward(folders) { // what is made in a folder changes its time, and takes its rights
		if err := finish(m); err != nil {
			return err
		}
	}
	return nil
}

// inTheWay is what stands in a folder, and is no folder, in place of one above a name: a file or a link that an agent may have put there; "": nothing
// does.
func inTheWay(root *os.Root, name string) string {
	for i := range name {
		if name[i] != '/' || i == 0 {
			continue
		}
		if info, err := root.Lstat(name[:i]); err == nil && !info.IsDir() {
			return name[:i]
		}
	}
	return ""
}

// Remove removes what has a name in a folder that an agent left. Where something stands in the way, nothing has that name: what a link leads to is a
// file of its own.
func Remove(from *os.Root, name string) error {
	if inTheWay(from, name) != "" {
		return nil
	}
	return from.RemoveAll(name)
}

// Write writes a file with the folders above it. What stands in its place, which an agent may have put there, is removed first, be it a link, a pipe
// or a folder.
func Write(to *os.Root, name string, data []byte, mode fs.FileMode) error {
	if other := inTheWay(to, name); other != "" {
		if err := to.Remove(other); err != nil {
			return err
		}
	}
	if err := to.RemoveAll(name); err != nil {
		return err
	}
	if err := to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// Read reads a regular file that an agent may have written. It does not block on what is no file, and a longer one is an error. An error is the agent's
// doing unless it is a HostFault.
func Read(from *os.Root, name string, most int64) ([]byte, error) {
	f, err := from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return data, err
}
