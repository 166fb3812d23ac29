package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	require.True(t, strings.HasPrefix(out, "agent.yaml: ok\n"), out)
	status, _, errOut = run(t, "job", "validate", "--set", "agent.format=word", "agent.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, `there is no format "word" (did you mean "words"?)`)
}

// A format with all that it can declare, and a kind of agent, are named by job files, the server and the listings like ours: nothing but the
// options of this binary says so.
func TestAgentsOfThisBinary(t *testing.T) {
	own := append(options(),
		agentfly.WithAgentFactory("talk", "an agent that computes aloud", newWords),
		agentfly.WithAgent(agents.Kind{
			Name: "chat", Description: "an agent with two formats",
			Format: agents.FormatSpec{Name: "aloud", Description: "compute EXPRESSION", Parsers: []string{"aloud_v2"}, InTemplates: true, New: newWords},
		}),
		agentfly.WithFormat(agents.FormatSpec{Name: "murmur", Kind: "chat", Description: "the same, quietly", Parsers: []string{"murmur"}, New: newWords}),
	)
	with := func(args ...string) (status int, out, errOut string) {
		var o, e bytes.Buffer
		status = agentfly.Run(t.Context(), append([]string{"custom"}, args...), bytes.NewReader(nil), &o, &e, own...)
		return status, o.String(), e.String()
	}
	for _, agent := range []string{"{kind: talk, tools: [calculator]}", "{kind: chat, tools: [calculator]}", "{kind: chat, format: murmur, tools: [calculator]}"} {
		status, out, errOut := with("job", "validate", "--set", "agent="+agent, "agent.yaml")
		require.Zero(t, status, errOut)
		require.True(t, strings.HasPrefix(out, "agent.yaml: ok\n"), out)
	}
	status, _, errOut := with("job", "validate", "--set", "agent.kind=chad", "agent.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, `agent.kind: "chad" is not allowed; allowed: tool_call, action, chat, code, custom, external, react, search_r1, talk; nearest: chat`)
	status, _, errOut = with("job", "validate", "--set", "agent={kind: talk, format: murmur}", "agent.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "agent.format: murmur is a format of kind chat, and the kind is talk")

	status, out, errOut := with("agents", "list")
	require.Zero(t, status, errOut)
	for _, line := range []string{
		"talk             an agent that computes aloud\n", "chat             an agent with two formats\n  aloud          compute EXPRESSION\n  murmur         the same, quietly\n",
		"  words          compute EXPRESSION, or say ANSWER\n", "  hermes         <tool_call>",
	} {
		require.Contains(t, out, line)
	}
	status, out, errOut = with("job", "schema")
	require.Zero(t, status, errOut)
	require.Contains(t, out, "chat: aloud, murmur")

	status, _, errOut = with("serve", "--tool-call-parser", "mur", "nowhere")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "allowed: aloud_v2, hermes, llama3_json, llama4_json, mistral, murmur, qwen3_coder, qwen3_json, qwen3_xml")
	_, _, errOut = with("serve", "--tool-call-parser", "murmur", "nowhere")
	require.NotContains(t, errOut, "tool-call-parser")

	status, _, errOut = run(t, "job", "validate", "--set", "agent={kind: talk, tools: [calculator]}", "agent.yaml")
	require.Equal(t, 2, status, "the kind is this binary's only with the option")
	require.Contains(t, errOut, `agent.kind: "talk" is not allowed`)
}

// A run folder whose job names a kind of this binary is replayed, and goes on, with that kind.
func TestARunOfAnOwnKind(t *testing.T) {
	if !cgo.Available() {
		t.Skip("built without libtorch; run scripts/torchgo test")
	}
	own := append(options(), agentfly.WithAgentFactory("talk", "an agent that computes aloud", newWords))
	dir := filepath.Join(t.TempDir(), "run")
	for _, args := range [][]string{
		{"train", "--output", dir, "--set", "trainer.steps=2", "--set", "agent.kind=talk", "--set", "agent.format=talk", "agent.yaml"},
		{"replay", dir},
		{"train", "--output", dir, "--resume", "--set", "trainer.steps=3", "--set", "agent.kind=talk", "--set", "agent.format=talk", "agent.yaml"},
		{"inspect", "trajectory", "--run", dir},
	} {
		var out, errs bytes.Buffer
		status := agentfly.Run(t.Context(), append([]string{"custom"}, args...), bytes.NewReader(nil), &out, &errs, own...)
		require.Zero(t, status, "%v: %s%s", args, out.String(), errs.String())
		require.NotContains(t, out.String(), "cannot be read")
	}
	status, _, errs := run(t, "replay", dir)
	require.Equal(t, 2, status)
	require.Contains(t, errs, `agent.kind: "talk" is not allowed`)
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
