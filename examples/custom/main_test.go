package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
)

// run runs a command line of this module's binary in process.
func run(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	status = agentfly.Run(t.Context(), append([]string{"custom"}, args...), bytes.NewReader(nil), &o, &e, options()...)
	return status, o.String(), e.String()
}

func TestTool(t *testing.T) {
	status, out, errOut := run(t, "tools", "list")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "letters")
	require.Contains(t, out, "calculator", "the prebuilt tools stay")

	status, out, errOut = run(t, "tools", "call", "letters", `{"word": "Strawberry", "letter": "r"}`)
	require.Zero(t, status, errOut)
	require.JSONEq(t, `{"observation": "3"}`, out)

	status, out, _ = run(t, "tools", "call", "letters", `{"word": "Strawberry"}`)
	require.Equal(t, 1, status)
	require.Contains(t, out, `the argument \"letter\" is missing`)
}

func TestEstimator(t *testing.T) {
	got, err := median{2}.Advantages([]algorithms.Group{
		{{Reward: 1, Tokens: 2}, {Reward: 0, Tokens: 1}, {Reward: 5, Tokens: 1}},
		{{Reward: 1, Tokens: 1}, {Reward: 0, Tokens: 1}},
	})
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{0, 0}, {-2}, {8}}, {{1}, {-1}}}, got)

	status, out, errOut := run(t, "job", "effective", "--set", "algorithm.loss=reinforce", "job.yaml")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "median: A = scale * (r - median of the group's rewards) [this module]; scale = 3")
	status, _, errOut = run(t, "job", "effective", "--set", "algorithm.loss=reinforce", "--set", "algorithm.advantage={name: median, factor: 2}", "job.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "advantage median has no key factor; its keys are: scale")
}

// The reward rises when the loss, the estimator and the reward of this module train a random model.
func TestTrain(t *testing.T) {
	if !cgo.Available() {
		t.Skip("built without libtorch; run scripts/torchgo test")
	}
	dir := filepath.Join(t.TempDir(), "run")
	status, _, errOut := run(t, "train", "--output", dir, "job.yaml")
	require.Zero(t, status, errOut)
	data, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	var summary struct {
		Steps  int                           `json:"steps"`
		Reward struct{ First, Last float64 } `json:"reward"`
	}
	require.NoError(t, json.Unmarshal(data, &summary))
	require.Equal(t, 20, summary.Steps)
	require.Greater(t, summary.Reward.Last, summary.Reward.First+0.1)
}
