package weights

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// The weights that a killed job left for its servers go when the next one begins; its own go at its end.
func TestWeightsOfAKilledJobAreRemoved(t *testing.T) {
	dead := exec.Command(os.Args[0], "-test.run", "^$")
	require.NoError(t, dead.Run())
	folder := t.TempDir()
	mine := filepath.Base(strings.TrimSuffix(vllm.TempPattern("weights"), "*"))
	left := filepath.Join(folder, strings.Replace(mine, fmt.Sprint(os.Getpid()), fmt.Sprint(dead.Process.Pid), 1)+"7")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "version-3"), 0o755))
	var notes []string
	s := Sync{c: Config{Job: &job.Job{Engine: job.Engine{Folder: folder}}, Note: func(text string) { notes = append(notes, text) }}}
	require.NoError(t, s.makeFolder())
	require.NoDirExists(t, left)
	require.Equal(t, []string{"removed what a killed run left: " + left}, notes)
	require.DirExists(t, s.folder)
	require.Contains(t, filepath.Base(s.folder), mine)
	require.NoError(t, s.Close())
	rest, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, rest)
}
