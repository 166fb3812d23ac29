package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// demonstration is a line of what env demonstrate writes.
type demonstration struct {
	Reward   float64
	Messages []struct{ Role, Content string }
	Tools    []struct{ Function struct{ Name string } }
}

// demonstrated runs env demonstrate on a job's first n tasks, each of which the solver solves, and returns what it wrote too.
func demonstrated(t *testing.T, job string, n int) (all []demonstration, out string) {
	t.Helper()
	status, out, errs := command("", "env", "demonstrate", job, "--tasks", strconv.Itoa(n))
	require.Zero(t, status, errs)
	for line := range strings.Lines(out) {
		var d demonstration
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		require.InDelta(t, 1, d.Reward, 1e-9)
		all = append(all, d)
	}
	require.Len(t, all, n)
	return all, out
}

// What an environment's solver does is written as conversations that supervised fine-tuning learns, in the tokens of a rollout; then rewards go on
// from there. Settings and commands are those of docs/environments.md.
func TestDemonstrationsAreLearned(t *testing.T) {
	needTorch(t)
	dir := t.TempDir()
	page, err := os.ReadFile("docs/environments.md")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(page), "## Learn from the solver first")
	recipe, _, _ := strings.Cut(after, "\n## ")
	recipe = strings.Join(strings.Fields(recipe), " ")
	of := func(pattern string) string { return regexp.MustCompile(pattern).FindString(recipe) }
	all, out := demonstrated(t, "examples/frozenlake.yaml", 40)
	for _, d := range all {
		for i, m := range d.Messages {
			if i%2 == 0 {
				require.Equal(t, "user", m.Role)
				require.Contains(t, m.Content, "P")
			} else {
				require.Equal(t, "assistant", m.Role)
				require.Regexp(t, `^[ldru]$`, m.Content)
			}
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "demonstrations.jsonl"), []byte(out), 0o600))
	shown, err := os.ReadFile("examples/frozenlake.yaml")
	require.NoError(t, err)
	model, _, _ := strings.Cut(string(shown)[strings.Index(string(shown), "model:"):], "environment:")
	sft := strings.Join([]string{
		"version: 1\nname: sft\nseed: 1\ndevice: cpu", model, of(`\bsft: \{[^}]*\}`), of(`\bdata: \{[^}]*\}`), of(`\btrainer: \{[^}]*\}`), "output: run\n",
	}, "\n")
	file := filepath.Join(dir, "sft.yaml")
	require.NoError(t, os.WriteFile(file, []byte(sft), 0o600))
	run := filepath.Join(dir, "run")
	status, _, errs := command("", "train", "--output", run, file)
	require.Zero(t, status, errs)
	solved := func(args ...string) float64 {
		status, out, errs := command("", append([]string{"eval", "examples/frozenlake.yaml"}, args...)...)
		require.Zero(t, status, errs)
		var e struct{ Accuracy float64 }
		require.NoError(t, json.Unmarshal([]byte(out), &e), out)
		return e.Accuracy
	}
	require.Zero(t, solved(), "a random model stands still")
	require.Greater(t, solved("--model", run), 0.1, "one that learned forty crossings crosses some lakes")

	goOn := of("agentfly train examples/frozenlake.yaml --set [^`]*RUN[^` ]*")
	_, setting, _ := strings.Cut(strings.NewReplacer("RUN", run, "'", "").Replace(goOn), " --set ")
	status, _, errs = command("", "train", "examples/frozenlake.yaml", "--set", setting, "--set", "trainer.steps=1", "--set", "eval.every=0", "--output", filepath.Join(dir, "on"))
	require.Zero(t, status, errs)
}

// A solver that calls tools is written in the job's format of calls.
func TestDemonstrationsOfCalls(t *testing.T) {
	needTorch(t)
	const world = "version: 1\nname: x\nseed: 1\ndevice: cpu\nenvironment: {kind: voxel}\nrollout: {max_new_tokens: 512, max_tokens: 60000}\n" +
		"model: {scratch: {num_kv_heads: 4, max_positions: 65536, alphabet: \"abcdefghijklmnopqrstuvwxyz_<>/{}[]:,\\\"0123456789 \\n\", chat_template: \"{% for m in messages %}{{ m.content }}{% endfor %}%PROMPT\"}}\n"
	const tags, hermes = `^<(place|remove|done)>\{.*\}</(place|remove|done)>$`, `^<tool_call>\n\{"name": "(place|remove|done)", "arguments": \{.*\}\}\n</tool_call>$`
	for name, c := range map[string]struct{ format, prompt, call string }{
		"tags":                       {"tags", "", tags},
		"hermes":                     {"hermes", "", hermes},
		"the prompt opens a thought": {"tags", "{% if add_generation_prompt %}<think>{% endif %}", tags},
		"the first prompt opens one": {"hermes", "{% if add_generation_prompt and messages[-1].role != 'tool' %}<think>{% endif %}", hermes},
	} {
		t.Run(name, func(t *testing.T) {
			file, format, call := filepath.Join(t.TempDir(), "job.yaml"), c.format, c.call
			text := strings.Replace(world, "%PROMPT", c.prompt, 1) + "agent: {kind: tool_call, format: " + format + ", max_turns: 60}\n"
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			all, _ := demonstrated(t, file, 2)
			for _, d := range all {
				if format == "tags" { // the prompt names the tools
					require.Contains(t, d.Messages[0].Content, "<place>")
					require.Empty(t, d.Tools)
				} else { // the chat template does
					require.Len(t, d.Tools, 3)
					require.Equal(t, "done", d.Tools[0].Function.Name)
				}
				calls := 0
				for _, m := range d.Messages {
					if m.Role == "assistant" {
						calls++
						require.Regexp(t, call, m.Content)
					}
				}
				require.Positive(t, calls)
			}
		})
	}
}

// What cannot be demonstrated is said before an episode.
func TestDemonstrationsThatThereAreNot(t *testing.T) {
	needTorch(t)
	dir := t.TempDir()
	const world = "version: 1\nname: x\nseed: 1\ndevice: cpu\nmodel: {path: %MODEL}\n"
	for name, c := range map[string]struct{ job, says string }{
		"no environment": {"agent: {tools: [calculator]}\nrewards: [final_answer]\ndata: {train: %DATA, columns: {prompt: question}}\n", "environment: is missing; its solver is what a demonstration shows"},
		"format":         {"environment: {kind: voxel}\nagent: {kind: tool_call, format: mistral}\n", "agent.format: mistral: demonstrations are written in the formats tags and hermes, and for agents of kind action"},
		"texts":          {"environment: {kind: sokoban}\nagent: {kind: tool_call, format: tags}\n", "the solver's actions are texts; take agent.kind action"},
		"too few turns":  {"environment: {kind: sokoban}\nagent: {kind: action, max_turns: 1}\n", "3 of 3 episodes of the solver did not reach the goal"},
	} {
		t.Run(name, func(t *testing.T) {
			model, err := filepath.Abs("examples/tiny/model")
			require.NoError(t, err)
			tasks, err := filepath.Abs("examples/tiny/tasks.jsonl")
			require.NoError(t, err)
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "_")+".yaml")
			text := strings.NewReplacer("%MODEL", model, "%DATA", tasks).Replace(world + c.job)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			status, out, errs := command("", "env", "demonstrate", "--tasks", "3", file)
			require.NotZero(t, status)
			require.Empty(t, out)
			require.Contains(t, errs, c.says)
		})
	}
}
