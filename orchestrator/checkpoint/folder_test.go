package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPruneKeepsTheBest(t *testing.T) {
	f := Folder{Dir: t.TempDir(), Keep: 1}
	for _, name := range []string{"step-10", "step-20", "step-30"} {
		require.NoError(t, os.MkdirAll(filepath.Join(f.Dir, name), 0o755))
	}
	require.Empty(t, f.Target(Best))
	require.NoError(t, pointTo(filepath.Join(f.Dir, Best), "step-10"))
	require.NoError(t, f.prune("step-30"))
	require.DirExists(t, filepath.Join(f.Dir, "step-10"))
	require.NoDirExists(t, filepath.Join(f.Dir, "step-20"))
	require.NoError(t, f.PointToBest(30))
	require.Equal(t, "step-30", f.Target(Best))
	require.NoDirExists(t, filepath.Join(f.Dir, "step-10"))
}
