package agentfly_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/sandbox"
)

// Each kind of agent samples and trains with its example job. scripts/agents_table.sh runs them to their end.
func TestAgentJobs(t *testing.T) {
	needTorch(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	for _, kind := range []string{"react", "code", "search_r1", "action", "custom"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "code" {
				if _, err := sandbox.Open(t.Context(), sandbox.Auto); err != nil {
					t.Skip(err)
				}
			}
			dir := filepath.Join(t.TempDir(), "run")
			status, out, errs := command("", "train", "examples/agents_"+kind+".yaml", "--output", dir, "--set", "trainer.steps=2")
			require.Equal(t, 0, status, "%s%s", out, errs)
			data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
			require.NoError(t, err)
			require.Contains(t, string(data), `"trajectories/finished":128`)
			require.NotContains(t, string(data), `"tools/calls":0,`)
			require.Equal(t, 2, strings.Count(string(data), `"reward/mean"`))
		})
	}
}
