package rewards_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

const rewardFile = `
import asyncio, os
from typing import Dict, List, Optional
from agentfly import Context, reward, state

@reward()
def exact(final_response, answer):
    return 1.0 if final_response == answer else 0.0

@reward(name="detailed")
async def details(prediction, trajectory, task, messages, environment, level=3, missing="default"):
    await asyncio.sleep(0)
    assert environment is None and missing == "default"
    assert task["id"] == "t1" and task["prompt"][0]["content"] == "What is 2+2?"
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "calculator", "arguments": {"expression": "2+2"}}
    assert messages[2]["content"] == "4" and messages[2]["name"] == "calculator"
    assert trajectory["stop_reason"] == "answer" and trajectory["answer"] == "4" == prediction
    assert trajectory["turns"][0]["completion"] == "<calculator>2+2</calculator>"
    assert trajectory["results"][0]["observation"] == "4" and trajectory["results"][0]["failed"] is False
    return {"reward": 0.5, "level": level, "right": True, "note": "for people"}

@reward()
def as_agentfly(final_response: str, answer: str, trajectory: List[Dict], context: Context, **kwargs):
    assert context.metadata["level"] == 7 and kwargs == {"level": 7}
    return {"reward": float(len([m for m in trajectory if m["role"] == "tool"])), "acc": final_response == answer}

@reward()
def lists(a: str = "", trajectory: list = None, messages=None):
    return float(trajectory == messages)

@reward()
def optional(trajectory: Optional[List[Dict]] = None, messages=None):
    return float(trajectory == messages)

@reward(stateful=True)
def counted():
    state()["n"] = state().get("n", 0) + 1
    return state()["n"]

@reward()
def needs(final_response, golden):
    return 1

@reward()
def nan(final_response):
    return float("nan")

@reward()
def huge(final_response):
    return 10**400

@reward()
def text(final_response):
    return "good"

@reward()
def no_reward(final_response):
    return {"score": 1}

@reward()
def raises(final_response):
    raise ValueError("no")

@reward(timeout=0.2)
def hangs(final_response):
    while True:
        pass

@reward()
def crashes(final_response):
    os.write(2, b"last words")
    os._exit(9)
`

func pythonBuilder(t *testing.T) *rewards.Builder {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rewards.py"), []byte(rewardFile), 0o600))
	r := resources.New(resources.Options{Resolve: func(p string) string { return filepath.Join(dir, p) }})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return rewards.Prebuilt().Builder(t.Context(), r)
}

func pythonInput() rewards.Input {
	call := trajectory.ToolCall{ID: "c1", Name: "calculator", Arguments: []byte(`{"expression": "2+2"}`)}
	return rewards.Input{
		Task: trajectory.Task{ID: "t1", Prompt: []trajectory.Message{trajectory.Text("user", "What is 2+2?")}, Fields: map[string]any{"answer": "4", "level": 7}},
		Trajectory: &trajectory.Trajectory{ID: "x", TaskID: "t1", StopReason: trajectory.StopAnswer, Turns: []trajectory.Turn{
			{Completion: "<calculator>2+2</calculator>", Results: []trajectory.ToolResult{{Call: call, Observation: "4", Duration: time.Millisecond}}},
			{Completion: "<answer>4</answer>", FinalAnswer: "4", AnsweredThisTurn: true},
		}},
	}
}

func TestPythonRewards(t *testing.T) {
	b := pythonBuilder(t)
	score := func(name string) (rewards.Score, error) {
		w, err := b.Make(name, map[string]any{"python": "rewards.py"})
		require.NoError(t, err)
		require.Equal(t, name, w.Name())
		return w.Score(t.Context(), pythonInput())
	}
	for name, want := range map[string]rewards.Score{
		"exact":       {Value: 1},
		"detailed":    {Value: 0.5, Parts: map[string]float64{"level": 7, "right": 1}},
		"lists":       {Value: 1},
		"optional":    {Value: 1},
		"as_agentfly": {Value: 1, Parts: map[string]float64{"acc": 1}},
	} {
		got, err := score(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	for name, want := range map[string]string{
		"needs":     `the argument golden is no field of task "t1"; known are environment, final_response, messages, prediction, task, trajectory, and its fields answer, level`,
		"nan":       "the function returned nan or an infinity; return finite numbers",
		"text":      `it returned "good"; return a number, or a dict whose reward is a number`,
		"no_reward": `it returned {"score": 1}; return a number, or a dict whose reward is a number`,
		"huge":      "it returned the number 1" + strings.Repeat("0", 32) + "…; return numbers from -1.7976931348623157e+308 to 1.7976931348623157e+308",
		"raises":    "ValueError: no",
		"crashes":   "crashes broke: its process ended: the worker ended (exit status 9); the last that it wrote: ",
		"hangs":     "no score after 200ms, the timeout of its decorator",
	} {
		_, err := score(name)
		require.ErrorContains(t, err, want, name)
	}
	for range 2 {
		got, err := score("counted")
		require.NoError(t, err)
		require.InDelta(t, 1, got.Value, 0, "what a reward keeps is not kept beyond it")
	}
	unanswered := pythonInput()
	unanswered.Trajectory.Turns = unanswered.Trajectory.Turns[:1]
	w, err := b.Make("exact", map[string]any{"python": "rewards.py"})
	require.NoError(t, err)
	got, err := w.Score(t.Context(), unanswered)
	require.NoError(t, err)
	require.Zero(t, got.Value)
}

func TestPythonRewardErrors(t *testing.T) {
	b := pythonBuilder(t)
	_, err := b.Make("exakt", map[string]any{"python": "rewards.py"})
	require.ErrorContains(t, err, `rewards: exakt: the file has no reward "exakt" (did you mean "exact"?); its rewards are exact, detailed`)
	_, err = b.Make("exact", map[string]any{"python": "rewards.py", "weigth": 1})
	require.ErrorContains(t, err, `unknown field "weigth"`)
}
