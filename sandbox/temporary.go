//go:build linux

package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Folder is a temporary folder that the next start removes where its processes are killed: it is locked while one of them lives.
type Folder struct {
	path string
	lock *os.File // the folder; the lock is that of the descriptor and of what inherits it
}

// A folder gets the name under which others look for it once it is locked; until then it has another one.
const (
	folderPrefix, folderSuffix, newSuffix = "agentfly-", "-locked", "-new"

	settled = time.Minute // a new folder that is older was left
)

// stale runs RemoveStale once in this process.
var stale sync.Once

// TempFolder makes a folder for temporary files of a kind; kind is part of its name.
func TempFolder(kind string) (*Folder, error) {
	stale.Do(RemoveStale)
	path, err := os.MkdirTemp("", folderPrefix+kind+"-*"+newSuffix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_SH)
	}
	locked := strings.TrimSuffix(path, newSuffix) + folderSuffix
	if err == nil {
		err = renameNew(path, locked)
	}
	if err != nil {
		_ = lock.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return &Folder{path: locked, lock: lock}, nil
}

// Path is absolute if the folder for temporary files is.
func (f *Folder) Path() string { return f.path }

// Close removes the folder.
func (f *Folder) Close() error { return errors.Join(RemoveAll(f.path), f.lock.Close()) }

// renameNew gives a folder a name that no other has.
func renameNew(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	return os.Rename(from, to) // a file system without it; it replaces an empty folder at most
}

// RemoveStale removes folders of TempFolder whose processes were killed.
func RemoveStale() {
	for suffix, age := range map[string]time.Duration{folderSuffix: 0, newSuffix: settled} {
		paths, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"+suffix))
		for _, path := range paths {
			removeUnlocked(path, age)
		}
	}
}

func removeUnlocked(path string, age time.Duration) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || time.Since(info.ModTime()) < age {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		return // another user's, who removes it; root's agents run as nobody, whose their folders are
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = RemoveAll(path)
	}
}

// RemoveAll removes a folder in which a program may have taken its own rights away.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	reopenErr := Reopen(dir)
	if again := os.RemoveAll(dir); again != nil {
		return errors.Join(again, reopenErr)
	}
	return nil
}

// Reopen gives the owner all rights to a folder and to the folders in it, which a program may have taken away.
func Reopen(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// Chmod needs the right to pass the folders above, which are visited before.
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
		if d == nil || !d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().Perm()&0o700 != 0o700 { // it is read after this
			_ = root.Chmod(path, info.Mode().Perm()|0o700)
		}
		return nil
	})
}
