package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/python/gpython"
	"github.com/agentfly/agentfly/trajectory"
)

// TestMain lets the test binary stand in for agentfly's in tests that need a process of its own. The tests name files from the root of the
// repository, where it goes; a process that stands in for agentfly stays where it was started.
func TestMain(m *testing.M) {
	gpython.Main(os.Args)
	if os.Getenv("AGENTFLY_TEST_BINARY") != "" {
		agentfly.Main(inChildren...)
	}
	if err := os.Chdir(".."); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// inChildren is what those processes know beside what agentfly has.
var inChildren []agentfly.Option

// self is the file of the test binary.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // nothing that needs a process of its own can run
	}
	return path
}

// process is a command line that runs in a process of its own.
func process(args ...string) *exec.Cmd {
	c := exec.Command(self(), args...)
	c.Env = append(os.Environ(), "AGENTFLY_TEST_BINARY=1")
	return c
}

// command runs a command line and returns status, output and errors.
func command(in string, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = agentfly.Run(context.Background(), append([]string{"agentfly"}, args...), strings.NewReader(in), &o, &e)
	return status, o.String(), e.String()
}

func needTorch(t *testing.T) {
	t.Helper()
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
}

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
}

// onPath puts this program on PATH as agentfly, as jobs name it in the command of an MCP server.
func onPath(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\nAGENTFLY_TEST_BINARY=1 exec '" + self() + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agentfly"), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func trainTiny(t *testing.T, dir string, args ...string) ([]float64, []byte) {
	t.Helper()
	status, out, errs := command("", append(append([]string{"train", "--output", dir}, args...), "examples/tiny.yaml")...)
	require.Zero(t, status, "%s%s", out, errs)
	return curve(t, dir)
}

func trainJob(t *testing.T, jobFile string, args ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", append([]string{"train", "--output", dir, jobFile}, args...)...)
	require.Zero(t, status, "%s%s", out, errs)
	return dir
}

// curve is the reward of each step of a run, and the bytes of its final weights.
func curve(t *testing.T, dir string) (rewards []float64, weights []byte) {
	t.Helper()
	return curveWithin(t, dir, 1e-4)
}

// curveWithin is curve for a run whose engine and trainer differ by less than mismatch in a token's logprob.
func curveWithin(t *testing.T, dir string, mismatch float64) (rewards []float64, weights []byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if r, ok := m["reward/mean"].(float64); ok {
			rewards = append(rewards, r)
			require.Less(t, m["update/mismatch_max"].(float64), mismatch, "engine and trainer disagree")
		}
	}
	weights, err = os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
	require.NoError(t, err)
	return rewards, weights
}

func last(v []float64, n int) (mean float64) {
	for _, x := range v[len(v)-n:] {
		mean += x / float64(n)
	}
	return mean
}

// metricsOf are the lines of metrics.jsonl that hold the key.
func metricsOf(t *testing.T, dir, key string) (out []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if _, ok := m[key]; ok {
			out = append(out, m)
		}
	}
	return out
}

func summaryOf(t *testing.T, dir string) (s struct {
	Steps int                `json:"steps"`
	Loss  map[string]float64 `json:"loss"`
	Eval  map[string]float64 `json:"eval"`
},
) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &s))
	return s
}

// stepLines are the steps of metrics.jsonl in the order of the file.
func stepLines(t *testing.T, dir string) (steps []int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var m struct {
			Step int      `json:"step"`
			Mean *float64 `json:"reward/mean"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if m.Mean != nil {
			steps = append(steps, m.Step)
		}
	}
	return steps
}

func requireSameRun(t *testing.T, dir string, rewards []float64, weights []byte) {
	t.Helper()
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, stepLines(t, dir))
	again, same := curve(t, dir)
	require.Equal(t, rewards, again)
	require.True(t, bytes.Equal(weights, same), "the final weights differ")
	status, out, errs := command("", "inspect", "trajectory", "--run", dir)
	require.Zero(t, status, errs)
	require.Equal(t, 6*128, strings.Count(out, "\n"), "every trajectory is stored once")
}

// opened is the store of a run, to read.
func opened(t *testing.T, dir string) *store.Reader {
	t.Helper()
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// eachTrained calls f with every group that a run trained, in the order of training, and returns what its log holds.
func eachTrained(t *testing.T, db *store.Reader, f func(step int, b store.Batch, g trajectory.Group)) *store.Recovery {
	t.Helper()
	log, err := db.Recover(context.Background(), 0)
	require.NoError(t, err)
	for step, b := range log.Batches {
		groups, err := db.Groups(context.Background(), b.Groups, "")
		require.NoError(t, err)
		for _, g := range groups {
			f(step, b, g)
		}
	}
	return log
}
