//go:build unix

package runfolder

import (
	"errors"
	"os"
	"syscall"
)

// lockFolder locks a folder until unlock, or until the process ends, whatever happens to it. It leaves no file behind.
func lockFolder(dir string) (unlock func(), err error) { return flock(dir, syscall.LOCK_EX) }

// locked tells whether somebody has locked a folder, as far as can be said. Others who ask at the same time are nobody.
func locked(dir string) bool {
	unlock, err := flock(dir, syscall.LOCK_SH)
	if err == nil {
		unlock()
	}
	return errors.Is(err, errLocked)
}

func flock(dir string, how int) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return func() { f.Close() }, nil // closing releases the lock
}

// inode is the number of a file in its file system; 0 is unknown.
func inode(file os.FileInfo) uint64 {
	if stat, ok := file.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino) // not an uint64 on every system
	}
	return 0
}

// alive tells whether there is a process of that number.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
