package environments

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// DecodeTask reads the fields of a start's task into a struct with json tags, for Reset. A field that known does not name is an error, but for those
// that are Spare. Its error is a *TaskError.
func DecodeTask(s Start, known []string, into any) error {
	fields := make(map[string]any, len(s.Task.Fields))
	for _, name := range slices.Sorted(maps.Keys(s.Task.Fields)) {
		switch {
		case slices.Contains(known, name):
			fields[name] = s.Task.Fields[name]
		case !s.Spare(name):
			return WrongTask("the environment knows no field %q%s; its fields are %q, and rewards and data may have %q",
				wording.Clip(name, 64), wording.DidYouMean(name, known), known, Reserved)
		}
	}
	if err := resources.Decode(fields, into); err != nil {
		return &TaskError{err.Error()}
	}
	return nil
}

// LevelTasks are the first n tasks of a split of a world whose levels are generated from numbers, 0 and up. content is all that a level is: levels with
// the same content are one task, and a fifth of all contents are those of Eval, so that no level is in both splits. The field "level" of a task is
// its number.
func LevelTasks(kind, split string, n int, content func(level int64) string) ([]trajectory.Task, error) {
	if split != Train && split != Eval {
		return nil, fmt.Errorf("environments: %s: there is no split %q; the splits are %s and %s", kind, wording.Clip(split, 64), Train, Eval)
	}
	const patience = 5000 // levels in a row that are none, until there are no more
	known, tasks, last := map[uint64]bool{}, []trajectory.Task(nil), int64(0)
	for level := int64(0); len(tasks) < n && level-last < patience; level++ {
		h := fnv.New64a()
		_, _ = h.Write([]byte(content(level)))
		sum := h.Sum64()
		if (sum>>32%5 == 0) != (split == Eval) || known[sum] {
			continue
		}
		known[sum], last = true, level
		tasks = append(tasks, trajectory.Task{ID: fmt.Sprintf("%s-%d", kind, level), Fields: map[string]any{"level": level}})
	}
	if len(tasks) < n {
		return nil, fmt.Errorf("environments: %s: the split %s has %d tasks and %d are asked for; ask for fewer, or for larger levels", kind, split, len(tasks), n)
	}
	return tasks, nil
}

// levels is the source of worlds whose levels are generated from numbers.
type levels struct {
	simple
	id      string
	content func(level int64) string
}

// Levels is a source of environments that make makes in this process, with the tasks of LevelTasks. id names the configuration.
func Levels(spec Spec, id string, make func() Environment, content func(level int64) string) Source {
	spec.InProcess = true
	return levels{simple{spec, make}, id, content}
}

func (l levels) Tasks(split string, n int) ([]trajectory.Task, error) {
	return LevelTasks(l.id, split, n, l.content)
}

// Shortest is a shortest list of moves, of the numbers below moves, from a state to one that is the goal, found by breadth-first search; nil: there is
// none. step is the state after a move, false where the move is not possible.
func Shortest[S comparable](from S, moves int, goal func(S) bool, step func(s S, move int) (S, bool)) []int {
	type came struct {
		from S
		by   int
	}
	seen, queue := map[S]came{from: {by: -1}}, []S{from}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if goal(s) {
			way := []int{}
			for seen[s].by >= 0 {
				way = append(way, seen[s].by)
				s = seen[s].from
			}
			slices.Reverse(way)
			return way
		}
		for m := range moves {
			next, possible := step(s, m)
			if _, known := seen[next]; possible && !known {
				seen[next] = came{s, m}
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// Texts are the actions of a list of moves by their names.
func Texts(names []string, moves []int) []Action {
	out := make([]Action, len(moves))
	for i, m := range moves {
		out[i].Text = names[m]
	}
	return out
}

// ActionOf is the index in names of the action that a text names, by its first letter alone too; -1: it names none.
func ActionOf(names []string, text string) int {
	text = strings.ToLower(strings.TrimSpace(text[:min(len(text), 64)]))
	return slices.IndexFunc(names, func(name string) bool { return text == name || text == name[:1] })
}

// LevelOf is the number of the level that a start asks for: that of its task's field "level", else the seed of the episode.
func LevelOf(s Start) (int64, error) {
	var fields struct {
		Level *int64 `json:"level"`
	}
	if err := DecodeTask(s, []string{"level"}, &fields); err != nil {
		return 0, err
	}
	if fields.Level == nil {
		return s.Seed, nil
	}
	if *fields.Level < 0 {
		return 0, WrongTask("its level is %d, and levels begin at 0", *fields.Level)
	}
	return *fields.Level, nil
}
