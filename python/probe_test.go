package python

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/sandbox"
)

// Looking for the interpreter runs no module of the folder that agentfly is in, nor of PYTHONPATH: the probe is outside every sandbox.
func TestProbeRunsNoModuleOfTheWorkingFolder(t *testing.T) {
	dir, added := t.TempDir(), t.TempDir()
	ran := filepath.Join(t.TempDir(), "ran")
	for _, where := range []string{dir, added} {
		for _, name := range []string{"ast", "glob", "json", "site", "sysconfig", "fnmatch"} {
			require.NoError(t, os.WriteFile(filepath.Join(where, name+".py"), []byte("open("+strconv.Quote(ran)+", 'w').close()\nraise SystemExit(1)\n"), 0o600))
		}
	}
	file := filepath.Join(t.TempDir(), "tools.py")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	t.Setenv("PYTHONPATH", added)
	t.Chdir(dir)
	l, err := cpython(t.Context(), file, Options{Sandbox: &sandbox.Sandbox{}})
	require.NoFileExists(t, ran)
	require.NoError(t, err)
	require.Contains(t, l.readOnly, file)
}
