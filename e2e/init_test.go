package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
)

// What init writes is a job that validates, whose tests pass, and nothing that was there is written over.
func TestInitWritesAJobThatValidates(t *testing.T) {
	needPython(t)
	for _, tool := range []string{"python", "none"} {
		dir := filepath.Join(t.TempDir(), "mine")
		status, out, errs := command("", "init", dir, "--tool", tool, "--model", "examples/tiny/model")
		require.Zero(t, status, errs)
		require.Empty(t, errs)
		require.Contains(t, out, "wrote     "+dir+"/job.yaml")
		require.Contains(t, out, "next      agentfly job validate "+dir+"/job.yaml")
		job := filepath.Join(dir, "job.yaml")
		status, out, errs = command("", "job", "validate", "--run-code", job)
		require.Zero(t, status, errs)
		require.Contains(t, out, job+": ok\n")
		for _, file := range []string{"tools.py", "rewards.py"} {
			if file == "tools.py" && tool == "none" {
				require.NoFileExists(t, filepath.Join(dir, file))
				continue
			}
			status, out, errs = command("", "tools", "test", filepath.Join(dir, file))
			require.Zero(t, status, "%s%s", out, errs)
			require.Contains(t, out, "ok   test_")
		}
		before, err := os.ReadFile(job)
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, "data", "eval.jsonl")))
		status, out, errs = command("", "init", dir, "--name", "other")
		require.Equal(t, 2, status)
		require.Empty(t, out)
		require.Contains(t, errs, "nothing is written, because it is there already: "+job)
		require.NoFileExists(t, filepath.Join(dir, "data", "eval.jsonl"))
		after, err := os.ReadFile(job)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	}
	for want, args := range map[string][]string{
		`the name "a b"`: {"--name", "a b"}, `the tool is "go"; allowed: python, none`: {"--tool", "go"}, `steps is "0"`: {"--steps", "0"}, "--model is empty": {"--model", ""},
	} {
		dir := filepath.Join(t.TempDir(), "mine")
		status, _, errs := command("", append([]string{"init", dir}, args...)...)
		require.Equal(t, 2, status)
		require.Contains(t, errs, want)
		require.NoDirExists(t, dir)
	}
}

func TestWhatInitWritesTrains(t *testing.T) {
	needTorch(t)
	needPython(t)
	if _, err := modelfile.Resolve("HuggingFaceTB/SmolLM2-135M-Instruct"); err != nil {
		t.Skip("make setup fetches the model: ", err)
	}
	if testing.Short() {
		t.Skip("it trains SmolLM2; leave -short out")
	}
	dir := filepath.Join(t.TempDir(), "mine")
	status, _, errs := command("", "init", dir)
	require.Zero(t, status, errs)
	job, run := filepath.Join(dir, "job.yaml"), filepath.Join(dir, "run")
	status, out, errs := command("", "train", job, "--output", run, "--set", "device=cpu", "--set", "trainer.steps=1", "--set", "rollout={groups: 1, group_size: 2, max_new_tokens: 28}", "--set", "data.eval=null", "--set", "agent.max_turns=1")
	require.Zero(t, status, "%s%s", out, errs)
	require.Len(t, metricsOf(t, run, "update/loss"), 1)
	require.False(t, strings.Contains(out, "failed 1"), out)
}
