package data

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/trajectory"
)

// spread deals the values of the field data.spread in turn: within a pool no value comes again before each of the others has
// come, and the tasks of a value are dealt through epochs of their own. A shuffle of the tasks alone leaves to chance how
// often a short run meets one sort of task, and when. The task at a position depends on the seed and the position alone.
type spread struct {
	orders Orders
	pools  [][][]int // [pool][value][task]: indices of the pool's tasks, values in alphabetical order
	first  []int     // [pool] number of its first value, counted over all pools behind the pools themselves
}

func newSpread(data *Tasks, field string, pools [][]trajectory.Task, seed uint64) (*spread, error) {
	out := &spread{orders: Orders{seed: seed}}
	number := len(pools)
	for _, tasks := range pools {
		byValue := map[string][]int{}
		for i, t := range tasks {
			v, ok := t.Fields[field].(string)
			if !ok {
				return nil, fmt.Errorf("%s: task %q has no text in the field %q that data.spread names", data.Path, t.ID, field)
			}
			byValue[v] = append(byValue[v], i)
		}
		var values [][]int
		for _, v := range slices.Sorted(maps.Keys(byValue)) {
			values = append(values, byValue[v])
		}
		out.pools, out.first = append(out.pools, values), append(out.first, number)
		number += len(values)
	}
	return out, nil
}

// index is the task that pool k deals at a position: in each round of the values their order is a seeded permutation, and
// the round is the position among the tasks of the value.
func (s *spread) index(k, at int) int {
	values := s.pools[k]
	v, round := s.orders.Index(k, len(values), at), at/len(values)
	tasks := values[v]
	return tasks[s.orders.Index(s.first[k]+v, len(tasks), round)]
}
