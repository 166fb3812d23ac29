//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns of a terminal; 0 is unknown.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
