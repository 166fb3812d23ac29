//go:build unix

package workspace

import (
	"io/fs"
	"syscall"
)

// inode names a file whatever names it has in folders.
type inode struct{ device, number uint64 }

// linked is the inode of a file, and whether it has several names.
func linked(file fs.FileInfo) (n inode, several bool) {
	st, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{uint64(st.Dev), uint64(st.Ino)}, st.Nlink > 1 // not an uint64 on every system
}
