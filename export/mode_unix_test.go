//go:build unix

package export

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new file may be read by whom the user's umask leaves it to, and who may read one that is replaced stays as it was.
func TestWhoMayReadAFile(t *testing.T) {
	was := syscall.Umask(0o027)
	t.Cleanup(func() { syscall.Umask(was) })
	path := filepath.Join(t.TempDir(), "calc.csv")
	mode := func() os.FileMode {
		require.NoError(t, WriteWhole(path, func(w *os.File) error {
			_, err := w.WriteString("x")
			return err
		}))
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Mode()
	}
	require.Equal(t, os.FileMode(0o640), mode())
	require.NoError(t, os.Chmod(path, 0o604))
	require.Equal(t, os.FileMode(0o604), mode())
}
