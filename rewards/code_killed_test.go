//go:build linux

package rewards

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// What a killed process leaves of its gradings is removed by the next that opens a sandbox, also where programs run as another user.
func TestCodeTestsKilled(t *testing.T) {
	const variable = "AGENTFLY_TEST_KILLED"
	grading := func() []string {
		paths, err := filepath.Glob(filepath.Join(os.TempDir(), "agentfly-grade-*-locked"))
		require.NoError(t, err)
		return paths
	}
	if os.Getenv(variable) != "" {
		r := codeReward(t, nil)
		go func() {
			_, _ = r.Score(t.Context(), Input{
				Trajectory: answered("```python\nopen('begun', 'w').close()\nimport time\ntime.sleep(1000)\n```"),
				Task:       trajectory.Task{Fields: map[string]any{"tests": []any{"assert True"}}},
			})
		}()
		require.Eventually(t, func() bool {
			for _, path := range grading() {
				begun := false
				_ = filepath.WalkDir(path, func(_ string, d os.DirEntry, err error) error {
					begun = begun || err == nil && d.Name() == "begun"
					return nil
				})
				if begun {
					return true
				}
			}
			return false
		}, time.Minute, time.Millisecond)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	codeReward(t, nil) // skips where there is no sandbox
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, "-test.run=^TestCodeTestsKilled$")
	c.Env = append(os.Environ(), variable+"=1")
	out, err := c.CombinedOutput()
	require.EqualError(t, err, "signal: killed", "%s", out)
	left := grading()
	require.Len(t, left, 1)
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(left[0], long, long))
	_, err = sandbox.Open(t.Context(), sandbox.None)
	require.NoError(t, err)
	require.NoDirExists(t, left[0])
}
