package data

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// told makes tasks of kinds, each with so many tasks of each of its stories.
func told(sizes map[string][]int, kinds ...string) *Tasks {
	out := &Tasks{Path: "tasks.jsonl"}
	for _, kind := range kinds {
		for story, n := range sizes[kind] {
			for range n {
				id := fmt.Sprint(kind, "-", story, "/", len(out.Tasks))
				out.Tasks = append(out.Tasks, trajectory.Task{ID: id, Fields: map[string]any{"kind": kind, "story": fmt.Sprint(kind, "-", story)}})
			}
		}
	}
	return out
}

// With data.spread no story of a kind comes again before each of the others has, however many tasks a story has, and no
// task comes again before each of its story has. Without it a shuffle deals a story of 1 in 3 up to four times in a row here.
func TestSpreadDealsTheValuesOfAFieldInTurn(t *testing.T) {
	data := told(map[string][]int{"gap": {5, 1, 3}, "join": {4, 2, 2}}, "gap", "join")
	for seed := range uint64(20) {
		d := job.Data{Balance: "kind", Spread: "story"}
		s, err := NewDealer(data, d, 2, seed)
		require.NoError(t, err)
		story := func(at, k int) string { return s.Task(k, at).Fields["story"].(string) }
		firsts := map[string]bool{}
		for k, kind := range []string{"gap", "join"} {
			dealt := map[string][]string{}
			for round := range 10 {
				var got []string
				for i := range 3 {
					task := s.Task(k, 3*round+i)
					got = append(got, task.Fields["story"].(string))
					dealt[got[i]] = append(dealt[got[i]], task.ID)
				}
				require.ElementsMatch(t, []string{kind + "-0", kind + "-1", kind + "-2"}, got, "each round has every story once")
				firsts[got[0]] = true
			}
			for name, ids := range dealt {
				all := tasksOf(data, name)
				for at := 0; at+len(all) <= len(ids); at += len(all) {
					require.ElementsMatch(t, all, ids[at:at+len(all)], "each epoch of %s has all its tasks", name)
				}
			}
		}
		require.Greater(t, len(firsts), 2, "rounds begin with different stories")
		again, err := NewDealer(data, d, 2, seed)
		require.NoError(t, err)
		for at := 29; at >= 0; at-- { // a position does not depend on what was dealt before: a resumed run deals the same
			require.Equal(t, story(at, 1), again.Task(1, at).Fields["story"])
		}
	}
}

func tasksOf(data *Tasks, story string) (out []string) {
	for _, task := range data.Tasks {
		if task.Fields["story"] == story {
			out = append(out, task.ID)
		}
	}
	return out
}

// Sources are dealt in their own turns, each through the values of the field that it has.
func TestSpreadWithinSources(t *testing.T) {
	a, b := told(map[string][]int{"gap": {5, 1}}, "gap"), told(map[string][]int{"join": {1, 1, 2}}, "join")
	data := &Tasks{Tasks: append(append([]trajectory.Task{}, a.Tasks...), b.Tasks...), Sources: []Tasks{*a, *b}}
	s, err := NewDealer(data, job.Data{Train: job.Sources{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}, Spread: "story"}, 1, 3)
	require.NoError(t, err)
	bySource := map[string][]string{}
	for at := range 24 {
		task := s.Task(0, at)
		kind := task.Fields["kind"].(string)
		bySource[kind] = append(bySource[kind], task.Fields["story"].(string))
	}
	for at := 0; at < 12; at += 2 {
		require.ElementsMatch(t, []string{"gap-0", "gap-1"}, bySource["gap"][at:at+2])
	}
	for at := 0; at < 12; at += 3 {
		require.ElementsMatch(t, []string{"join-0", "join-1", "join-2"}, bySource["join"][at:at+3])
	}
}

func TestSpreadNeedsTheFieldInEveryTask(t *testing.T) {
	data := told(map[string][]int{"gap": {2, 1}}, "gap")
	delete(data.Tasks[1].Fields, "story")
	_, err := NewDealer(data, job.Data{Spread: "story"}, 2, 1)
	require.EqualError(t, err, `tasks.jsonl: task "gap-0/1" has no text in the field "story" that data.spread names`)
}
