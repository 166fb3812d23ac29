package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trained runs a planted job and returns what it printed.
func trained(t *testing.T, e edits, args ...string) (dir string, status int, out, errs string) {
	t.Helper()
	needTorch(t)
	dir, path := planted(t, e)
	status, out, errs = command("", append([]string{"train", "--output", filepath.Join(dir, "run"), path}, args...)...)
	return dir, status, out, errs
}

// A reward that one task lacks a field for fails its trajectories, and every step says how many and why.
func TestAStepSaysWhatFailed(t *testing.T) {
	_, status, out, errs := trained(t, edits{"tasks.jsonl": "{\"prompt\": \"1+1\", \"answer\": \"2\"}\n{\"prompt\": \"1+2\"}\n"})
	require.Zero(t, status, errs)
	require.Equal(t, 2, strings.Count(out, "\n  failed 2/4  reward: final_answer: task \"2\" has no field \"answer\"; add the column to the data or name another one\n"), out)
}

// An evaluation says it too, in a run and by itself.
func TestAnEvaluationSaysWhatFailed(t *testing.T) {
	dir, _, out, _ := trained(t, edits{"held.jsonl": "{\"prompt\": \"2+2\", \"answer\": \"4\"}\n{\"prompt\": \"2+3\"}\n", "trainer": "trainer: {steps: 1}"})
	const cause = "failed 1/2  reward: final_answer: task \"2\" has no field \"answer\""
	require.Contains(t, out, "\n  "+cause)
	_, _, errs := command("", "eval", filepath.Join(dir, "job.yaml"))
	require.Contains(t, errs, cause)
}

// A step in which nothing can be learned says so once, with a prompt and a reply, and what to change.
func TestARunSaysThatItLearnsNothing(t *testing.T) {
	_, status, out, errs := trained(t, edits{"rewards": "rewards: [{name: f1, weight: 0}]"})
	require.Zero(t, status, errs)
	const note = "note: nothing can be learned from this step: in each of its 2 groups all trajectories earned the same, so every advantage is 0: every reward is 0"
	require.Equal(t, 1, strings.Count(out, note), out)
	require.Less(t, strings.Index(out, "step   1/2"), strings.Index(out, note), "at the first step")
	require.Greater(t, strings.Index(out, "step   2/2"), strings.Index(out, note))
	require.Regexp(t, `\n      task "[12]", reward 0\n      prompt "<\|user\|>1\+[12]<\|end\|><\|assistant\|>"\n      reply  "`, out)
}

// Completions that are all cut are the first thing to mend.
func TestARunSaysThatEveryCompletionIsCut(t *testing.T) {
	_, status, out, errs := trained(t, edits{"rollout": "rollout: {groups: 2, group_size: 2, max_new_tokens: 1, max_tokens: 64}"})
	require.Zero(t, status, errs)
	require.Equal(t, 1, strings.Count(out, "note: every completion was cut by a token limit before the model ended it (rollout.max_new_tokens 1, rollout.max_tokens 64)"), out)
}

// Characters that the tokenizer has no tokens for are told before the first step.
func TestARunSaysWhatTheTokenizerDoesNotKnow(t *testing.T) {
	_, status, out, errs := trained(t, edits{"tasks.jsonl": "{\"prompt\": \"1+é\", \"answer\": \"2\"}\n{\"prompt\": \"1+2\", \"answer\": \"3\"}\n", "trainer": "trainer: {steps: 1}"})
	require.Zero(t, status, errs)
	require.Contains(t, out, "note: the tokenizer has no tokens for \"1+é\" in the prompt of task \"1\": the model reads \"<|user|><unk>")
}

const raises = `from agentfly import tool


@tool()
def calculator(expression: str) -> str:
    """Calculates.

    Args:
        expression (str): such as 1+1
    """
    print("asked for", expression)
    raise KeyError("API_TOKEN")
`

// A tool that always raises is told with its error in every step, ends the run at its limit, and what it printed is kept.
func TestAToolThatAlwaysRaisesEndsTheRun(t *testing.T) {
	needPython(t)
	job := edits{
		"agent": "agent: {kind: tool_call, format: tags, max_turns: 2, tools: [{python: t.py}], instructions: false}", "t.py": raises,
		"rollout": "rollout: {groups: 2, group_size: 32, max_new_tokens: 2, max_tokens: 64, max_raised: 40}", "trainer": "trainer: {steps: 20}",
	}
	dir, status, out, errs := trained(t, job)
	require.Equal(t, 1, status, out)
	require.Regexp(t, `(?m)^  tool errors (\d+)/\d+  calculator: .*API_TOKEN`, out)
	require.Regexp(t, `step \d+: the tool calculator raised the same error in all of its \d+ calls so far \(rollout.max_raised: 40\): .*API_TOKEN.*; correct the tool, or set rollout.max_raised: 0`, errs)
	log, err := os.ReadFile(filepath.Join(dir, "run", "logs", "workers.log"))
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z t\.py: asked for 1\+\d$`, string(log))
}

// What is wrong with the copy of the job in a run folder is told of the copy, not of the user's file, whose lines are others.
func TestReplayBlamesTheRunsOwnCopy(t *testing.T) {
	needTorch(t)
	model := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(model, os.DirFS("examples/tiny/model")))
	dir, path := planted(t, edits{"model": "model: {path: " + model + "}"})
	run := filepath.Join(dir, "run")
	status, _, errs := command("", "train", "--output", run, path)
	require.Zero(t, status, errs)
	require.NoError(t, os.RemoveAll(model))
	status, _, errs = command("", "replay", run)
	require.Equal(t, 2, status)
	require.NotContains(t, errs, path+":")
	copied, err := os.ReadFile(filepath.Join(run, "job.yaml"))
	require.NoError(t, err)
	place := regexp.MustCompile(`^agentfly: ` + regexp.QuoteMeta(filepath.Join(run, "job.yaml")) + `:(\d+):\d+: model.path: `).FindStringSubmatch(errs)
	require.NotNil(t, place, errs)
	line, err := strconv.Atoi(place[1])
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(copied), "\n")[line-1], model)
}

// A cache that is no multiple of the engine's blocks is used as far as it goes.
func TestACacheOfAnySize(t *testing.T) {
	_, status, out, errs := trained(t, edits{"engine": "engine: {cache_tokens: 200}"})
	require.Zero(t, status, errs)
	require.Contains(t, out, "step   2/2")
}

// A limit that the model cuts short is told; the run goes on, as ever. So it is by the commands that train nothing.
func TestARunSaysThatTheContextIsTheLimit(t *testing.T) {
	dir, status, out, errs := trained(t, edits{"rollout": "rollout: {groups: 2, group_size: 2, max_new_tokens: 2, max_tokens: 4000}", "trainer": "trainer: {steps: 1}"})
	require.Zero(t, status, errs)
	note := regexp.MustCompile(`(?m)^note: rollout.max_tokens is 4000, and the model's context or engine.cache_tokens hold \d+: trajectories end there$`)
	require.Len(t, note.FindAllString(out, -1), 1, out)
	for _, name := range []string{"eval", "rollout"} {
		status, _, errs := command("", name, filepath.Join(dir, "job.yaml"))
		require.Zero(t, status, errs)
		require.Len(t, note.FindAllString(errs, -1), 1, errs)
	}
}
