package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
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

func TestFormat(t *testing.T) {
	f, err := newWords(nil, agents.FormatOptions{})
	require.NoError(t, err)
	for in, want := range map[string]agents.Parsed{
		" compute 1 + 1\n": {Calls: []trajectory.ToolCall{{Name: "calculator", Arguments: []byte(`{"expression":"1 + 1"}`)}}},
		"say 2":            {Answer: "2", HasAnswer: true},
		"say":              {Errors: []string{"write compute and an expression, or say and the answer"}},
		"":                 {Errors: []string{"write compute and an expression, or say and the answer"}},
	} {
		got, err := f.Parse(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
	messages, err := f.Observe(t.Context(), []trajectory.ToolResult{{Observation: "2"}, {Observation: "Error: no number", Failed: true}})
	require.NoError(t, err)
	require.Equal(t, []trajectory.Message{trajectory.Text("user", "saw 2\nwrong")}, messages)

	status, out, errOut := run(t, "job", "validate", "agent.yaml")
	require.Zero(t, status, errOut)
	require.Equal(t, "agent.yaml: ok\n", out)
	status, _, errOut = run(t, "job", "validate", "--set", "agent.format=word", "agent.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, `there is no format "word" (did you mean "words"?)`)
}

// The format in Go samples, scores and trains as the same one in Python does, bit for bit.
func TestTheAgentInGoIsTheOneInPython(t *testing.T) {
	if !cgo.Available() {
		t.Skip("built without libtorch; run scripts/torchgo test")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	train := func(job string) (rewards []float64, weights []byte) {
		dir := filepath.Join(t.TempDir(), "run")
		status, _, errOut := run(t, "train", "--output", dir, "--set", "trainer.steps=3", job)
		require.Zero(t, status, errOut)
		data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		require.NoError(t, err)
		for line := range bytes.Lines(data) {
			var m struct {
				Reward *float64 `json:"reward/mean"`
				Calls  float64  `json:"tools/calls"`
			}
			require.NoError(t, json.Unmarshal(line, &m))
			if m.Reward != nil {
				require.NotZero(t, m.Calls)
				rewards = append(rewards, *m.Reward)
			}
		}
		weights, err = os.ReadFile(filepath.Join(dir, "checkpoints", "last", "model.safetensors"))
		require.NoError(t, err)
		return rewards, weights
	}
	rewards, weights := train("agent.yaml")
	sameRewards, sameWeights := train("../agents_custom.yaml")
	require.Len(t, rewards, 3)
	require.Equal(t, sameRewards, rewards)
	require.True(t, bytes.Equal(sameWeights, weights), "the weights differ")
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
