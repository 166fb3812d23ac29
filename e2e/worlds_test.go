package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a job of a model from scratch in an environment, small enough to be run several times.
const world = `version: 1
name: world
seed: 3
deterministic: true
device: cpu
model:
  scratch:
    alphabet: "PFSHG\nldruabcefghimnopstvwxyTYA.,:()0123456789 "
    chat_template: "{% for m in messages %}{{ m.content + '<eos>' }}{% endfor %}"
    max_positions: 1024
environment: {kind: frozenlake, params: {steps: 16}, instructions: false, tasks: {train: 32, eval: 8}, pool: {size: 3}}
agent: {kind: action, instructions: false, max_turns: 6}
rollout: {groups: 4, group_size: 8, max_new_tokens: 1, max_tokens: 1000, cut: parse}
rewards: [environment, {name: tool_cost, per_failed: 0.05}]
trainer: {steps: 5, learning_rate: 1.0e-3}
`

func worldJob(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "world.yaml")
	require.NoError(t, os.WriteFile(path, []byte(world), 0o600))
	return path
}

// A run in an environment, of fewer environments than trajectories, is the same again, and the same after kills at random moments.
func TestKillsOfARunInAnEnvironment(t *testing.T) {
	needTorch(t)
	k := newKilled(t)
	k.job = worldJob(t)
	whole := k.endAlike(kills(t, 3), func(string) {})
	status, out, errs := command("", "replay", whole)
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "weights: identical\n")

	for _, step := range metricsOf(t, whole, "environments/steps") {
		require.Positive(t, step["environments/steps"])
	}
	status, out, errs = command("", "resources", whole)
	require.Zero(t, status, errs)
	require.Regexp(t, `(?s)^not running: it ended at .*\nfrozenlake: 0 of 3 in use, \d ready, 0 starting, 0 waiting\n  leases \d+, waited p50 .*steps \d+, p50`, out)
	status, out, errs = command("", "resources", "--json", whole)
	require.Zero(t, status, errs)
	require.Contains(t, out, `"running":false,`)
}

// Rollouts beside updates, killed too: what became of it is in its log, and its replay comes to the same weights.
func TestAsynchronousRunInAnEnvironment(t *testing.T) {
	needTorch(t)
	k := newKilled(t)
	k.job = worldJob(t)
	start := time.Now()
	k.finish(filepath.Join(t.TempDir(), "first"), 0, asyncTiny...)
	k.longest = time.Since(start)
	dir := filepath.Join(t.TempDir(), "run")
	k.finish(dir, 1, asyncTiny...)
	status, out, errs := command("", "replay", dir)
	require.Zero(t, status, "%s%s", out, errs)
	require.Contains(t, out, "weights: identical\n")
}

// Estimators that read rewards of turns are paid by turn; the control that permutes rewards is paid whole.
func TestEstimatorsInAnEnvironment(t *testing.T) {
	needTorch(t)
	job := worldJob(t)
	for _, advantage := range []string{"grpo", "gigpo", "turn", "gae", "reinforce_pp"} {
		dir := filepath.Join(t.TempDir(), advantage)
		status, out, errs := command("", "train", job, "--output", dir, "--set", "trainer.steps=2", "--set", "algorithm.advantage="+advantage, "--set", "rewards=[environment]")
		require.Zero(t, status, "%s: %s%s", advantage, out, errs)
		require.Len(t, metricsOf(t, dir, "update/loss"), 2, advantage)
	}
}

// A run whose environments are processes is the same after kill -9, and neither a process nor a folder of any of the killed ones is left in the end.
func TestKillsOfARunInAPythonEnvironment(t *testing.T) {
	needTorch(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(temp, "job")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "corridor.py"), []byte(`import tempfile


class Corridor:
    def reset(self, seed=0):
        self.folder = tempfile.mkdtemp()
        self.at = seed % 3
        return "S" + "P" * self.at

    def step(self, action):
        self.at = max(0, self.at + {"l": -1, "r": 1}.get(action.strip()[:1], 0))
        return "S" + "P" * self.at, float(self.at > 3), self.at > 3, False, {}
`), 0o600))
	job := filepath.Join(dir, "world.yaml")
	text := strings.Replace(world, "environment: {kind: frozenlake, params: {steps: 16}", "environment: {kind: python, params: {class: corridor.py:Corridor}", 1)
	require.NoError(t, os.WriteFile(job, []byte(text), 0o600))
	k := newKilled(t)
	k.job = job
	k.endAlike(kills(t, 2), func(string) {})
	requireNothingLeft(t, temp)
}

// foldersLeft are the temporary folders that killed runs left. One of which a run was killed before it had its name is removed only once it is a
// minute old; it is none of them.
func foldersLeft(t *testing.T, temp, pattern string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(temp, pattern))
	require.NoError(t, err)
	return slices.DeleteFunc(left, func(path string) bool { return strings.HasSuffix(path, "-new") })
}

// requireNothingLeft checks that killed runs with this TMPDIR left neither a folder nor a process.
func requireNothingLeft(t *testing.T, temp string) {
	t.Helper()
	require.Empty(t, foldersLeft(t, temp, "agentfly-*"))
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range all {
		environ, _ := os.ReadFile(file)
		require.False(t, strings.Contains(string(environ), "TMPDIR="+temp+"/agentfly-environments"), file)
	}
}

// The same with TextWorldExpress, eight processes of Python with a process of Java each.
func TestKillsOfARunInTextWorldExpress(t *testing.T) {
	needTorch(t)
	python := os.Getenv("AGENTFLY_ENV_PYTHON")
	if python == "" {
		t.Skip("AGENTFLY_ENV_PYTHON names no Python with textworld-express: make test-env")
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("java is not on PATH: apt-get install default-jre-headless")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	job := filepath.Join(temp, "world.yaml")
	text := strings.Replace(world, "environment: {kind: frozenlake, params: {steps: 16}", "environment: {kind: textworld_express, params: {game: coin, list_actions: false, max_steps: 3, interpreter: "+python+"}", 1)
	text = strings.Replace(text, "size: 3", "size: 8", 1)
	text = strings.Replace(text, `"PFSHG\nldruabcefghimnopstvwxyTYA.,:()0123456789 "`, `" !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`+"`"+`abcdefghijklmnopqrstuvwxyz{|}~\n\t"`, 1)
	text = strings.Replace(text, "max_positions: 1024", "max_positions: 4096", 1)
	text = strings.Replace(text, "max_tokens: 1000", "max_tokens: 4000", 1)
	text = strings.Replace(text, "max_turns: 6", "max_turns: 3", 1)
	require.NoError(t, os.WriteFile(job, []byte(text), 0o600))
	k := newKilled(t)
	k.job = job
	k.endAlike(kills(t, 3), func(string) {})
	requireNothingLeft(t, temp)
}
