package boxed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A host that is short of something, or fails, is told from files that cannot be copied or read for what they are.
func TestHostFault(t *testing.T) {
	for _, of := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.ESTALE} {
		require.True(t, HostFault(errors.Join(nil, &fs.PathError{Op: "write", Path: "x", Err: of})), of)
	}
	require.False(t, HostFault(nil))
	dir := t.TempDir()
	file := func(name string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	file("file")
	file("folder/file")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "links"), 0o755))
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "links", "out")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pipes"), 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipes", "pipe"), 0o644))
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, root.WriteFile("file", nil, 0o644))
	require.NoError(t, root.Mkdir("folder", 0o755))
	require.NoError(t, root.Symlink("/", "out"))
	for from, to := range map[string]string{"file": "folder", "folder": "file", "links": "links", "pipes": "pipes", "folder/file": "out/file", "missing": "missing"} {
		err := Copy(t.Context(), filepath.Join(dir, from), root, to)
		require.Error(t, err, from)
		require.False(t, HostFault(err), err)
	}
	for _, name := range []string{"missing", "folder", "out"} {
		_, err := Read(root, name, 1)
		require.Error(t, err, name)
		require.False(t, HostFault(err), err)
	}
}
