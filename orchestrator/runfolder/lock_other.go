//go:build !unix

package runfolder

import (
	"errors"
	"os"
)

// lockFolder cannot lock here.
func lockFolder(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }

// locked cannot be said here.
func locked(string) bool { return false }

// inode is not known here.
func inode(os.FileInfo) uint64 { return 0 }

// alive cannot be said here.
func alive(int) bool { return true }
