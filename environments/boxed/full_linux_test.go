package boxed

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
)

// A file tool that meets a full disk of the host is the infrastructure's failure, and not what the agent did wrong.
func TestFullDisk(t *testing.T) {
	r := resources.New(resources.Options{Sandbox: sandbox.None})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	folders, err := Open(t.Context(), r)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folders.Close()) })
	f, err := folders.New()
	require.NoError(t, err)
	f.Base.Limits = Standard.Sandbox()
	disk := filepath.Join(f.Dir(), "disk")
	require.NoError(t, os.Mkdir(disk, 0o777))
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	arguments := []byte(`{"path":"disk/a","content":"` + strings.Repeat("x", 100_000) + `"}`)
	_, known, err := f.Do(t.Context(), environments.Action{Name: "file_create", Arguments: arguments}, time.Second)
	require.True(t, known)
	require.ErrorIs(t, err, syscall.ENOSPC)
}
