package boxed

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Split are the names of the tasks of a split, in an order that the seed mixes: a fifth, and at least one of two, are those of Eval. kind begins the
// error.
func Split(kind string, seed int64, names []string, split string) ([]string, error) {
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(mixed(seed, a), mixed(seed, b)), cmp.Compare(a, b)) })
	held := len(names) / 5
	if held == 0 && len(names) > 1 {
		held = 1
	}
	switch split {
	case environments.Train:
		return names[held:], nil
	case environments.Eval:
		return names[:held], nil
	}
	return nil, fmt.Errorf("%s: there is no split %q; the splits are train and eval", kind, wording.Clip(split, 64))
}

// Tasks are the first n of a split, whose names [Split] made of what is in path. The field holds the name.
func Tasks(kind, field, path, split string, names []string, n int) ([]trajectory.Task, error) {
	if n < 0 || n > len(names) {
		return nil, fmt.Errorf("%s: %d tasks are asked for, and the split %s of %s has %d; say environment.tasks: {%s: %d}", kind, n, split, path, len(names), split, len(names))
	}
	out := make([]trajectory.Task, n)
	for i := range out {
		out[i] = trajectory.Task{ID: kind + "-" + names[i], Fields: map[string]any{field: names[i]}}
	}
	return out, nil
}

func mixed(seed int64, name string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", seed, name)
	x := h.Sum64() // of which the last letters hardly move the first bits
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}
