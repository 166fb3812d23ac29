package files

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/agentfly/agentfly/tools"
)

// On a full disk an edit, an undo and a creation fail by the disk's own error, and leave what was there.
func TestFullDisk(t *testing.T) {
	a := newAgent(t)
	disk := filepath.Join(a.dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o777))
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=128k"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	content := func() string {
		text, err := os.ReadFile(filepath.Join(disk, "a"))
		require.NoError(t, err)
		return string(text)
	}
	long := strings.Repeat("x = 1\n", 8000)
	require.Equal(t, "disk/a has 8001 lines", a.call("file_create", args{"path": "disk/a", "content": "HEAD\n" + long}))
	edit := args{"path": "disk/a", "old": "HEAD", "new": strings.Repeat("y = 1\n", 16000)}
	require.Equal(t, `Error: "disk/a": no space left on device`, a.call("file_edit", edit))
	require.Equal(t, "HEAD\n"+long, content())

	raw, err := json.Marshal(edit)
	require.NoError(t, err)
	tool, err := a.all.Lookup("file_edit")
	require.NoError(t, err)
	_, err = tool.Call(t.Context(), tools.Call{Trajectory: "a", Arguments: raw})
	require.ErrorIs(t, err, syscall.ENOSPC)

	require.Equal(t, `Error: "disk/b": no space left on device`, a.call("file_create", args{"path": "disk/b", "content": long + long}))
	require.NoFileExists(t, filepath.Join(disk, "b"))

	require.Equal(t, "disk/a is now:\n1\tHE\n2\tx = 1\n3\tx = 1", a.call("file_edit", args{"path": "disk/a", "old": "HEAD\n" + long, "new": "HE\nx = 1\nx = 1\n"}))
	require.Equal(t, "disk/b has 14000 lines", a.call("file_create", args{"path": "disk/b", "content": strings.Repeat("z = 1\n", 14000)}))
	require.Equal(t, `Error: "disk/a": no space left on device`, a.call("file_undo", args{"path": "disk/a"}))
	require.Equal(t, "HE\nx = 1\nx = 1\n", content())
	require.NoError(t, os.Remove(filepath.Join(disk, "b")))
	require.Equal(t, "disk/a has 8001 lines again", a.call("file_undo", args{"path": "disk/a"}))
	require.Equal(t, "HEAD\n"+long, content())
}
