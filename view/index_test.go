package view

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// The page says how many texts a search does not reach. One that is replaced or forgotten is none of them any more.
func TestTextsThatAreNotSearchedAreCounted(t *testing.T) {
	t.Parallel()
	x := index{}
	put := func(id string, step int, text string) {
		x.put(&entry{ID: id, Phase: store.Train, Step: step}, []byte(text))
	}
	put("a", 1, "alpha")
	x.texts = mostText // as if others had filled it
	put("b", 2, "beta")
	put("b", 2, "beta")
	require.Equal(t, 1, x.unread, "replaced by one that is not held either")
	put("a", 1, "gamma")
	require.Equal(t, 1, x.unread, "the text that is replaced makes room")
	require.Equal(t, mostText, x.texts)
	x.forget(2)
	require.Equal(t, 0, x.unread)
	require.Equal(t, len("gamma"), x.texts)
}

// A run that goes on at an earlier step has not trained any more what steps from there on had: neither those sampled for a step before.
func TestWhatIsForgottenWasNotTrained(t *testing.T) {
	t.Parallel()
	x := index{}
	for step := range 3 {
		x.put(&entry{ID: string(rune('a' + step)), Phase: store.Train, Step: step, TrainedAt: -1, Staleness: -1, Lowest: int32(step)}, nil)
		x.batch(store.Batch{Step: step + 1, Version: int32(step + 1), Groups: []store.GroupRef{{Step: step}}})
	}
	told := x.entries[1]
	require.Equal(t, []int{2, 1}, []int{told.TrainedAt, told.Staleness})
	x.forget(2)
	require.Len(t, x.entries, 2)
	require.Equal(t, []int{1, 1}, []int{x.entries[0].TrainedAt, x.entries[0].Staleness})
	require.Equal(t, []int{-1, -1}, []int{x.entries[1].TrainedAt, x.entries[1].Staleness})
	require.Equal(t, 2, told.TrainedAt, "an answer that was given holds the old one")
	x.batch(store.Batch{Step: 3, Version: 3, Groups: []store.GroupRef{{Step: 1}}})
	require.Equal(t, []int{3, 2}, []int{x.entries[1].TrainedAt, x.entries[1].Staleness})
}

// Of an agent of another program the prompts and the results of tools stand in what it sent alone.
func TestWhatAnAgentSentIsSearched(t *testing.T) {
	t.Parallel()
	text := string(textOf(&trajectory.Trajectory{Turns: []trajectory.Turn{{Completion: "Hello", Incoming: &trajectory.Incoming{
		Messages: json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"Find the Prompt"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"q\":\"An Argument\"}"}}]},{"role":"tool","content":"The Result","tool_call_id":"1"}]`),
	}}, {Incoming: &trajectory.Incoming{Prompt: "Once upon"}}, {Incoming: &trajectory.Incoming{Messages: json.RawMessage("{")}}}}))
	for _, want := range []string{"hello", "find the prompt", "an argument", "the result", "once upon"} {
		require.Contains(t, text, want)
	}
}

// Tasks are compared by what was trained, and by the first and the last evaluation that is whole. Those that got worse stand there, and no others.
func TestTasksThatGotWorse(t *testing.T) {
	t.Parallel()
	of := func(phase string, step int, task string, reward float64) *entry {
		return &entry{Phase: phase, Step: step, Task: task, Reward: reward}
	}
	failed := of("eval-after", 9, "worse", 1)
	failed.Origin = "engine"
	found := []*entry{
		of(store.Train, 0, "fell", 1), of(store.Train, 0, "fell", 0.5), of(store.Train, 5, "fell", 0.25), of(store.Train, 0, "rose", 0), of(store.Train, 5, "rose", 1), of(store.Train, 0, "once", 1),
		of("eval-before", 0, "worse", 0.5), of("eval-before", 0, "better", 0), of("eval-before", 0, "same", 0.5), of("eval-before", 0, "gone", 0.5), of("eval-before", 0, "lost", math.NaN()),
		of("eval-step-5", 5, "worse", 1), of("eval-step-5", 5, "better", 0),
		of("eval-after", 9, "worse", 0.25), failed, of("eval-after", 9, "better", 1), of("eval-after", 9, "same", 0.5), of("eval-after", 9, "lost", 0),
		of("eval-after-kl", 9, "worse", 0), of("eval-tool_off", 9, "worse", 0), of("eval-step-10", 10, "worse", 0),
	}
	evals := []report.Evaluation{{Name: "before"}, {Name: "step-5", Step: 5}, {Name: "after", Step: 9}, {Name: "tool_off", Step: 9}} // that after step 10 goes on
	require.Equal(t, taskChanges{Compared: 2, Worse: 1, Tasks: []taskSum{{"fell", 3, 0.75, 0.25, -0.5}}}, trainedChanges(found, 5))
	require.Equal(t, taskChanges{Compared: 3, Worse: 1, Before: &evaluated{"eval-before", 0}, After: &evaluated{"eval-after", 9}, Tasks: []taskSum{{"worse", 2, 0.5, 0.25, -0.25}}}, heldOutChanges(found, evals))
	require.Equal(t, taskChanges{Tasks: []taskSum{}}, heldOutChanges(found[:11], evals), "one evaluation")
}

// A run that goes on beyond its end is evaluated after its training again: these are two evaluations, though they have one name.
func TestEvaluationsOfOneName(t *testing.T) {
	t.Parallel()
	found := []*entry{{Phase: "eval-before", Task: "a", Reward: 0.5}, {Phase: "eval-after", Step: 20, Task: "a"}, {Phase: "eval-after", Step: 40, Task: "a", Reward: 0.9}}
	evals := []report.Evaluation{{Name: "before"}, {Name: "after", Step: 20}, {Name: "after", Step: 40}}
	require.Equal(t, taskChanges{Compared: 1, Before: &evaluated{"eval-before", 0}, After: &evaluated{"eval-after", 40}, Tasks: []taskSum{}}, heldOutChanges(found, evals))
	require.Equal(t, taskChanges{Compared: 1, Before: &evaluated{"eval-after", 20}, After: &evaluated{"eval-after", 40}, Tasks: []taskSum{}}, heldOutChanges(found[1:], evals[1:]))
}

// Failed calls are counted by what they said, in the words that most of them begin with.
func TestToolsSayWhyTheyFail(t *testing.T) {
	t.Parallel()
	x := index{}
	say := func(id, observation string) {
		o := trajectory.Trajectory{ID: id, Turns: []trajectory.Turn{{Results: []trajectory.ToolResult{
			{Call: trajectory.ToolCall{Name: "act"}, Observation: observation, Failed: true, Cause: trajectory.CauseRaised}, {Call: trajectory.ToolCall{Name: "act"}, Observation: "fine"},
		}}}}
		x.put(newEntry(store.Train, &o, &x.names), nil)
	}
	for id, text := range map[string]string{"a": "no such place\nmore", "b": "  no such place ", "c": "too far", "d": "", "e": strings.Repeat("x", 1000)} {
		say(id, text)
	}
	got := toolsOf(x.entries)
	require.Len(t, got, 1)
	require.Equal(t, 10, got[0].Calls)
	require.Equal(t, 5, got[0].Failed)
	require.Equal(t, []why{{"raised", "no such place", 2}, {"raised", "too far", 1}, {"raised", strings.Repeat("x", mostWhy) + "…", 1}}, got[0].Whys)
}

// A call that trajectories of a tree share was made once: tools count it once, and each trajectory has it.
func TestCallsThatAreSharedCountOnce(t *testing.T) {
	t.Parallel()
	x := index{}
	for _, id := range []string{"a", "a.0", "a.1"} {
		o := trajectory.Trajectory{ID: id, Turns: []trajectory.Turn{
			{Shared: "a:0", Results: []trajectory.ToolResult{{Call: trajectory.ToolCall{Name: "act"}, Observation: "no", Failed: true, Cause: trajectory.CauseRaised}}},
			{Results: []trajectory.ToolResult{{Call: trajectory.ToolCall{Name: "act"}}}},
		}}
		x.put(newEntry(store.Train, &o, &x.names), nil)
	}
	got := toolsOf(x.entries)
	x.trends(got)
	require.Len(t, got, 1)
	require.Equal(t, 4, got[0].Calls)
	require.Equal(t, 1, got[0].Failed)
	require.Equal(t, []why{{"raised", "no", 1}}, got[0].Whys)
	require.Equal(t, []num{0.25}, got[0].Trend)
	require.Len(t, x.entries[2].Calls, 2)
}

// A step is compared with what its own tasks earned before.
func TestTheTasksThatAStepDrew(t *testing.T) {
	t.Parallel()
	x := index{}
	for i, e := range []entry{
		{Step: 0, Task: "a", Reward: 1},
		{Step: 1, Task: "a", Reward: 0},
		{Step: 1, Task: "b", Reward: 1},
		{Step: 1, Task: "c", Reward: 1, Origin: "engine"},
		{Step: 2, Task: "a", Reward: 0},
		{Step: 2, Task: "a", Reward: 0.5},
		{Step: 2, Task: "b", Reward: 0.5},
		{Step: 2, Task: "c", Reward: 1},
		{Step: 3, Task: "a", Reward: 9},
		{Step: 1, Task: "a", Reward: 7, Phase: "eval-before"},
	} {
		e.ID = string(rune('a' + i))
		if e.Phase == "" {
			e.Phase = store.Train
		}
		x.put(&e, nil)
	}
	require.Equal(t, drawnTasks{Tasks: 3, Known: 2, Mean: 0.375, Before: 0.75}, x.drawn(2, 20))
	first := x.drawn(0, 20)
	require.Equal(t, 0, first.Known)
	require.True(t, math.IsNaN(float64(first.Mean)))
}

// The steps of a filter are those that people count: an evaluation after step 5 is listed with what was sampled for step 5, and not with step 6.
func TestEvaluationsAreListedWithTheStepThatTheyFollow(t *testing.T) {
	t.Parallel()
	x := index{}
	for i, e := range []entry{{Phase: "eval-before"}, {Phase: store.Train, Step: 4}, {Phase: "eval-step-5", Step: 5}, {Phase: store.Train, Step: 5}} {
		e.ID = string(rune('a' + i))
		x.put(&e, nil)
	}
	for _, c := range []struct {
		from, to int
		want     string
	}{{4, 5, "bc"}, {5, 6, "d"}, {-1 << 30, 5, "abc"}, {0, 0, "bcd"}} {
		var got []string
		for _, e := range x.find(filter{From: c.from, To: c.to, Group: -1, Sort: "step", Ascending: true}, nil) {
			got = append(got, e.ID)
		}
		slices.Sort(got)
		require.Equal(t, c.want, strings.Join(got, ""), "from %d to %d", c.from, c.to)
	}
}
