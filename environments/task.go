package environments

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// DecodeTask reads the fields of a task into a struct with json tags, for Reset. A field that known does not name is an error, but for those that
// Reserved names. Its error is a *TaskError.
func DecodeTask(t trajectory.Task, known []string, into any) error {
	fields := make(map[string]any, len(t.Fields))
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		switch {
		case slices.Contains(known, name):
			fields[name] = t.Fields[name]
		case !slices.Contains(Reserved, name):
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

// LevelOf is the number of the level that a start asks for: that of its task's field "level", else the seed of the episode.
func LevelOf(s Start) (int64, error) {
	var fields struct {
		Level *int64 `json:"level"`
	}
	if err := DecodeTask(s.Task, []string{"level"}, &fields); err != nil {
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
