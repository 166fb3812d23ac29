package trajectory

import (
	"slices"
	"strconv"
)

// Forks are where the turns of a group's trajectories fork within: the places in their completions, by the names of turns.
type Forks map[string][]int

// ForksOf finds the forks within turns of a group.
func ForksOf(all []*Trajectory) Forks {
	out := Forks{}
	for _, t := range all {
		for i := range t.Turns {
			for _, b := range t.Turns[i].Begun {
				if at, found := slices.BinarySearch(out[b.Shared], b.End); !found {
					out[b.Shared] = slices.Insert(out[b.Shared], at, b.End)
				}
			}
		}
	}
	return out
}

// Name is what token i of the completion of a turn is called: tokens of the group with the same name were sampled once, and the same trajectories have
// them. It is the name of the turn that they were sampled for, with the place of the last fork within it that stands before them; "": the turn is
// shared with none.
func (f Forks) Name(t *Turn, i int) string {
	name := t.Shared
	for _, b := range t.Begun {
		if i < b.End {
			name = b.Shared
			break
		}
	}
	at, found := slices.BinarySearch(f[name], i)
	if found {
		at++
	}
	if at == 0 {
		return name
	}
	return name + "+" + strconv.Itoa(f[name][at-1])
}
