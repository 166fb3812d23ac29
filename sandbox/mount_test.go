//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mount shows a folder under another path, writable or not, and its room counts; landlock refuses it in words.
func TestMounts(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		dir := t.TempDir()
		for _, name := range []string{"work", "read"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o777))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "read", "seen"), []byte("here"), 0o644))
		p := Program{
			Args:   []string{"sh", "-c", "cat /srv/deep/seen; echo x >/srv/deep/new || echo kept; echo y >/app/made; cat /workspace/made"},
			Mounts: []Mount{{Host: filepath.Join(dir, "work"), Inside: "/app", Writable: true}, {Host: filepath.Join(dir, "read"), Inside: "/srv/deep"}},
		}
		p.Workspace = p.Mounts[0].Host
		r, err := s.Run(t.Context(), p)
		if s.Kind() != Bubblewrap {
			require.ErrorContains(t, err, "/app cannot be mounted: only the sandbox bubblewrap shows folders under other paths")
			return
		}
		require.NoError(t, err)
		require.Equal(t, "herekept\ny\n", string(r.Stdout), string(r.Stderr))

		p.Args = []string{"sh", "-c", "head -c 8000000 /dev/zero >/more/big; sleep 5"}
		p.Mounts = []Mount{{Host: filepath.Join(dir, "work"), Inside: "/more", Writable: true}}
		p.Workspace, p.Limits = "", Limits{Disk: 1 << 20}
		r, err = s.Run(t.Context(), p)
		require.NoError(t, err)
		require.True(t, r.Exceeded == "disk" || r.Signal == "SIGXFSZ" || r.Exit != 0, "%+v", r)
	})
}

func TestMountsThatAreRefused(t *testing.T) {
	for inside, want := range map[string]string{
		"/": "cannot be mounted at", "app": "cannot be mounted at", "/app/../usr": "cannot be mounted at", "/usr/lib/x": "/usr is the sandbox's own", "/proc": "own", "/workspace/x": "own",
	} {
		require.ErrorContains(t, check(Program{Args: []string{"x"}, Mounts: []Mount{{Host: "/srv", Inside: inside}}}), want, inside)
	}
	require.ErrorContains(t, check(Program{Args: []string{"x"}, Mounts: []Mount{{Host: "srv", Inside: "/x"}}}), "not an absolute path")
}
