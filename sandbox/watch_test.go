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
