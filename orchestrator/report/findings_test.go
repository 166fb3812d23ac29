package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trajectory"
)

func errorOf(origin trajectory.Origin, text string) *trajectory.Trajectory {
	t := &trajectory.Trajectory{}
	t.Fail(origin, text)
	return t
}

func called(results ...trajectory.ToolResult) *trajectory.Trajectory {
	return &trajectory.Trajectory{Turns: []trajectory.Turn{{Results: results}}}
}

func result(name, arguments string, cause trajectory.Cause, text string) trajectory.ToolResult {
	r := trajectory.ToolResult{Call: trajectory.ToolCall{Name: name, Arguments: json.RawMessage(arguments)}, Observation: text}
	if cause != "" {
		r.Fail(cause, text)
	}
	return r
}

// Failures of a step are counted by cause: the same text but for numbers and names in quotes, wherever it happened. Calls and actions that cannot be read
// are of no tool.
func TestFailuresByCause(t *testing.T) {
	var all []*trajectory.Trajectory
	for i := range 16 {
		all = append(all, errorOf("reward", fmt.Sprintf("orchestrator: train-3-%d-%d: rewards: equal: task %q has no field \"answer\"", i/8, i, fmt.Sprint(i/8))))
	}
	all = append(all, errorOf("engine", "orchestrator: train-3-4-0 turn 2: vllm: no answer"), errorOf("engine", "a\x1b[31m\nb"), errorOf("tool", "c"), errorOf("store", "d"), errorOf("store", "e"))
	cancelled := errorOf("engine", "gone")
	cancelled.StopReason = trajectory.StopCancelled
	all = append(all, cancelled, called(
		result("search", "{}", trajectory.CauseRaised, "Error: page 7 is gone"), result("search", "{}", trajectory.CauseRaised, "Error: page 8 is gone"),
		result("search", "{}", "", "fine"), result("search", "{}", trajectory.CauseBroken, "Error: late"), result("calc", "{}", "", "4"),
	))
	require.Equal(t, []string{
		`failed 16/22  reward: equal: task "0" has no field "answer"`,
		"failed 1/22  engine: a\x1b[31m b", // the console makes it safe
		"failed 1/22  engine: vllm: no answer",
		"failed 3/22  other causes; agentfly inspect trajectory shows them",
		"tool errors 3/4  search: page 7 is gone (2 of them)",
	}, FailureLines([]trajectory.Group{{Trajectories: all}}))
	require.Equal(t, []string{"unreadable 2/3  the completion was empty; write an action"}, FailureLines([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{called(
		result("", "", trajectory.CauseParse, "Error: the completion was empty; write an action"), result("", "", trajectory.CauseParse, "Error: the completion was empty; write an action"),
		result("walk", "{}", "", "a wall"),
	)}}}), "what cannot be read is of no tool")
	require.Empty(t, FailureLines([]trajectory.Group{{Trajectories: []*trajectory.Trajectory{{}, called(result("calc", "{}", "", "4"))}}}))
	require.Empty(t, FailureLines(nil))
	var invented []*trajectory.Trajectory
	for i := range 50 {
		invented = append(invented, called(result(fmt.Sprintf("tool\n%d", i), "{}", trajectory.CauseUnknownTool, "Error: there is no such tool")))
	}
	lines := FailureLines([]trajectory.Group{{Trajectories: invented}})
	require.Len(t, lines, mostCauses)
	require.Equal(t, "tool errors 1/1  tool 0: there is no such tool", lines[0])
}

// findings of a job with the further settings.
func findings(t *testing.T, more string) *Findings {
	j, err := job.Parse("x.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl"+more), job.Options{})
	require.NoError(t, err)
	return &Findings{Job: j, Decode: func(ids []int32) string { return strings.Repeat("p", len(ids)) }}
}

// grouped is a group of one task whose trajectories earned these rewards.
func grouped(fields map[string]any, rewards ...float64) trajectory.Group {
	g := trajectory.Group{Task: trajectory.Task{ID: "t", Fields: fields}}
	for _, v := range rewards {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1, 2, 3})
		g.Trajectories = append(g.Trajectories, &trajectory.Trajectory{
			TaskID: "t", Reward: v, StopReason: trajectory.StopMaxTurns, Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{{CompletionStart: 3, Completion: "say \x1b"}},
		})
	}
	return g
}

// step is what the findings see of a step that sampled groups, of which so many were flat.
func step(flat int, norm float64, stops map[string]int, groups ...trajectory.Group) (*schedule.Batch, Step) {
	n := 0
	for _, g := range groups {
		n += len(g.Trajectories)
	}
	return &schedule.Batch{All: groups, Trained: groups}, Step{
		Update: Update{GradNorm: norm}, Rollouts: &Rollouts{Groups: Groups{Flat: flat}, Trajectories: Trajectories{Finished: n, Stops: stops}},
	}
}

// What keeps a step from learning is told once, with a prompt and a reply.
func TestFindingsOfAStep(t *testing.T) {
	const shown = "\n      task \"t\", reward 0\n      prompt \"ppp\"\n      reply  \"say \\x1b\""
	for name, c := range map[string]struct {
		flat   int
		norm   float64
		stops  map[string]int
		groups []trajectory.Group
		want   string // the beginning; "": nothing is told
	}{
		"no answers":       {1, 0, nil, []trajectory.Group{grouped(nil, 0, 0)}, "nothing can be learned from this step: in each of its 1 groups all trajectories earned the same, so every advantage is 0: every reward is 0, and no trajectory gave a final answer."},
		"solved":           {1, 0, map[string]int{"answer": 2}, []trajectory.Group{grouped(nil, 1, 1)}, "nothing can be learned from this step: in each of its 1 groups all trajectories earned the same, so every advantage is 0: every reward is 1. If that is the best, the tasks are solved"},
		"between groups":   {2, 0, nil, []trajectory.Group{grouped(nil, 0, 0), grouped(nil, 1, 1)}, "nothing can be learned from this step: in each of its 2 groups all trajectories earned the same, so every advantage is 0; sample more of each task"},
		"gradient 0":       {0, 0, nil, []trajectory.Group{grouped(nil, 0, 1)}, "the gradient is 0 though rewards differ"},
		"it learns":        {0, 1, nil, []trajectory.Group{grouped(nil, 0, 1)}, ""},
		"another estimate": {0, 1, nil, []trajectory.Group{grouped(nil, 1, 1)}, ""},
		"not a number":     {0, 1, nil, []trajectory.Group{grouped(nil, math.NaN(), math.NaN())}, ""},
		"no group":         {0, 0, nil, nil, ""},
	} {
		f := findings(t, "}\n")
		b, s := step(c.flat, c.norm, c.stops, c.groups...)
		require.Empty(t, f.Step(b, s, Learned{Skipped: true}), name)
		got := f.Step(b, s, Learned{Moved: true})
		if c.want == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.True(t, strings.HasPrefix(got[0], c.want), "%s: %s", name, got[0])
		if c.groups[0].Trajectories[0].Reward == 0 {
			require.True(t, strings.HasSuffix(got[0], shown), "%s: %s", name, got[0])
		}
		require.Empty(t, f.Step(b, s, Learned{Moved: true}), "%s: it is told once", name)
	}
}

// The notes speak of what the job has: in an environment nobody answers, and a program of its own reads replies that were cut.
func TestFindingsOfOtherAgents(t *testing.T) {
	f := findings(t, "}\n")
	f.Job.Environment = &job.Environment{}
	b, s := step(1, 0, nil, grouped(nil, 0, 0))
	got := f.Step(b, s, Learned{Moved: true})
	require.Len(t, got, 1)
	require.Contains(t, got[0], "every reward is 0. Hold the reply against the actions that the environment takes; ")
	f = findings(t, "}\n")
	f.Job.Agent.Kind = agents.External
	b, s = step(0, 1, nil, grouped(nil, 0, 1))
	s.Rollouts.Turns = &Turns{Turns: 2, Cut: 2}
	got = f.Step(b, s, Learned{Moved: true})
	require.Len(t, got, 1)
	require.Contains(t, got[0], "so the agent reads beginnings of replies; raise them")
}

// One kind of task that taught nothing in so many steps is told, while another one taught something.
func TestAKindOfTaskThatTeachesNothing(t *testing.T) {
	f := findings(t, ", balance: kind}\n")
	hard, easy := map[string]any{"kind": "hard"}, map[string]any{"kind": "easy"}
	for i := range 5 {
		b, s := step(2, 1, nil, grouped(hard, 0, 0), grouped(hard, 0, 0), grouped(easy, 0, 1))
		got := f.Step(b, s, Learned{Moved: true})
		if i != 2 {
			require.Empty(t, got, "step %d", i)
			continue
		}
		require.Len(t, got, 1)
		require.True(t, strings.HasPrefix(got[0], `tasks with kind "hard" taught nothing so far: each of their 6 groups was flat`), got[0])
	}
	f = findings(t, ", balance: kind}\n")
	for range 5 { // it is not the kind
		b, s := step(0, 1, nil, grouped(hard, 0, 0), grouped(hard, 0, 0))
		require.Empty(t, f.Step(b, s, Learned{Moved: true}))
	}
	f = findings(t, ", balance: kind}\n")
	for i := range 2 * mostKinds {
		b, s := step(0, 1, nil, grouped(map[string]any{"kind": i}, 0, 1))
		require.Empty(t, f.Step(b, s, Learned{Moved: true}))
	}
	require.Len(t, f.kinds, mostKinds)
}

// A tool ends the run that raised one error for different arguments and did nothing else.
func TestAToolThatOnlyRaises(t *testing.T) {
	raise := func(arguments, text string) trajectory.ToolResult {
		return result("f", arguments, trajectory.CauseRaised, text)
	}
	refuse := func(arguments string) trajectory.ToolResult {
		r := raise(arguments, "no such action")
		r.Outcome = &trajectory.Outcome{}
		return r
	}
	many := func(results ...trajectory.ToolResult) *schedule.Batch {
		b := &schedule.Batch{Step: 3}
		for i := range 20 {
			b.All = append(b.All, trajectory.Group{Trajectories: []*trajectory.Trajectory{called(results[i%len(results)])}})
		}
		return b
	}
	for name, c := range map[string]struct {
		batch *schedule.Batch
		ends  bool
	}{
		"the same error":      {many(raise(`{"x": 1}`, "no key"), raise(`{"x": 2}`, "no key")), true},
		"the same arguments":  {many(raise(`{"x": 1}`, "no key")), false},
		"other errors":        {many(raise(`{"x": 1}`, "no 1"), raise(`{"x": 2}`, "no 2")), false},
		"it worked once":      {many(raise(`{"x": 1}`, "no key"), raise(`{"x": 2}`, "no key"), result("f", "{}", "", "fine")), false},
		"the policy is wrong": {many(result("f", `1`, trajectory.CauseBadArguments, "no"), result("f", `2`, trajectory.CauseBadArguments, "no")), false},
		"the world refuses":   {many(refuse(`{"action": "a"}`), refuse(`{"action": "b"}`)), false},
		"it breaks":           {many(result("f", `1`, trajectory.CauseBroken, "no"), result("f", `2`, trajectory.CauseBroken, "no")), false},
	} {
		f := findings(t, "}\n")
		require.NoError(t, f.Raising(c.batch), name) // 20 calls
		err := f.Raising(c.batch)
		if !c.ends {
			require.NoError(t, err, name)
			continue
		}
		require.EqualError(t, err, "orchestrator: step 4: the tool f raised the same error in all of its 40 calls so far (rollout.max_raised: 32): no key; correct the tool, or set rollout.max_raised: 0 where the policy is to learn from that")
		f = findings(t, "}\nrollout: {max_raised: 0}\n")
		for range 5 {
			require.NoError(t, f.Raising(c.batch))
		}
	}
}
