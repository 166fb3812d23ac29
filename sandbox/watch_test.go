//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file with several names takes its blocks once, and room for each name: on a tmpfs each is an inode.
func TestFolderBytesOfLinks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	one, err := folderBytes(dir, holdings{})
	require.NoError(t, err)
	require.Greater(t, one, int64(1<<20))
	for i := range 40 {
		require.NoError(t, os.Link(file, filepath.Join(dir, fmt.Sprint(i))))
	}
	all, err := folderBytes(dir, holdings{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, all, one+40*inodeBytes)
	require.Less(t, all, one+1<<17)
}

// A folder beyond the limit ends the tree that is looked at first: it may have written all of that before the look. The next one begins in a folder that
// is known to be full, and may remove files.
func TestFullFolder(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, 3<<20), 0o600))
	program := func(script string) Program {
		p := shell(script)
		p.Workspace, p.Limits.Disk = dir, 2<<20
		return p
	}
	require.Equal(t, "disk", run(t, s, program("sleep 5")).Exceeded)
	require.Empty(t, run(t, s, program("sleep 1; rm file")).Exceeded)
	require.NoFileExists(t, filepath.Join(dir, "file"))
	require.Empty(t, run(t, s, program("true")).Exceeded)
	require.Empty(t, s.overfull.folders)
}
