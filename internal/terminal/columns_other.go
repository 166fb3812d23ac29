//go:build !unix

package terminal

import "os"

// columns is not known here.
func columns(*os.File) int { return 0 }

// size is not known here.
func size(*os.File) (columns, rows int) { return 0, 0 }

// foreground is not known here.
func foreground(*os.File) bool { return true }
