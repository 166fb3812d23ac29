//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns of a terminal; 0 is unknown.
func columns(f *os.File) int {
	width, _ := size(f)
	return width
}

// size of a terminal; 0 is unknown.
func size(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// foreground tells whether the terminal is this process's now, and not that of the shell which has it in the background. One that does not say is.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == 0 || group == unix.Getpgrp()
}
