package modelfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps two folders at once, so that dir exists at every moment.
func exchange(tmp, dir string) error {
	err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) { // the file system cannot
		return swap(tmp, dir)
	}
	if err != nil {
		return &os.LinkError{Op: "renameat2", Old: tmp, New: dir, Err: err}
	}
	return nil
}
