//go:build !unix

package workspace

import "io/fs"

type inode struct{}

// linked is not known here, where no program runs that could link files.
func linked(fs.FileInfo) (n inode, several bool) { return inode{}, false }
