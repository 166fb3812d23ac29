package data

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// curriculum is a curriculum: it makes the order of each epoch of each pool. No task comes twice in an epoch.
type curriculum struct {
	by      string
	orders  Orders
	pools   [][]trajectory.Task
	numbers [][]float64    // difficulty: [pool][task]
	epochs  int            // difficulty: that are ordered
	success *float64       // data.success
	shaped  bool           // rewards have a penalty of overlong shaping
	where   map[string]int // pool of a task's id
	state   *CurriculumState
}

// CurriculumState is what a curriculum knows at a point of the run; it is saved with the state.
type CurriculumState struct {
	mu    sync.Mutex
	By    string    `json:"by"`
	Pools []tracked `json:"pools"`
}

// tracked is the state of one pool.
type tracked struct {
	Begun int             `json:"begun"` // epochs
	Open  []epoch         `json:"open"`  // of these the last one, and those before it that are not trained: a run that was cut off deals them again
	Last  map[string]last `json:"last"`  // by task: how its last group ended
}

// epoch is an order of the tasks of a pool.
type epoch struct {
	Start int   `json:"start"` // position of its first task
	Order []int `json:"order"` // indices of tasks
}

func (e epoch) end() int { return e.Start + len(e.Order) }

// end is the position behind the last epoch.
func (t *tracked) end() int { return t.Open[len(t.Open)-1].end() }

// last is how the last group of a task ended.
type last struct {
	Success float64 `json:"success"` // share of its finished trajectories
	Masked  float64 `json:"masked"`  // mean number of response tokens
}

// newCurriculum makes the curriculum of the pools that tasks are dealt from.
func newCurriculum(c job.Curriculum, path string, success *float64, pools [][]trajectory.Task, seed uint64) (*curriculum, error) {
	out := &curriculum{by: c.By, orders: Orders{seed: seed}, pools: pools, epochs: c.Epochs, success: success, where: map[string]int{}, state: &CurriculumState{By: c.By, Pools: make([]tracked, len(pools))}}
	for k, tasks := range pools {
		numbers := make([]float64, len(tasks))
		for i, t := range tasks {
			out.where[t.ID] = k
			if c.By != "difficulty" {
				continue
			}
			v, ok := numberIn(t.Fields[c.Field])
			if !ok {
				return nil, fmt.Errorf("%s: task %q has no number in the field %q that data.curriculum names", path, t.ID, c.Field)
			}
			numbers[i] = v
		}
		out.numbers = append(out.numbers, numbers)
		out.state.Pools[k] = tracked{Open: []epoch{{}}, Last: map[string]last{}}
	}
	return out, nil
}

// numberIn is a finite number in a task's field: of a file, or of an environment that makes its tasks.
func numberIn(field any) (v float64, ok bool) {
	switch n := field.(type) {
	case json.Number:
		x, err := n.Float64()
		v, ok = x, err == nil
	case float64:
		v, ok = n, true
	case int64:
		v, ok = float64(n), true
	case int:
		v, ok = float64(n), true
	}
	return v, ok && !math.IsInf(v, 0) && !math.IsNaN(v)
}

// learns tells whether the order depends on what the run sampled.
func (c *curriculum) learns() bool { return c.by != "difficulty" }

// index is the task that pool k deals at a position. Positions whose batch is trained are over: nobody asks for them.
func (c *curriculum) index(k, at int) int {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	n := len(c.pools[k])
	if !c.learns() { // every epoch has all tasks
		t := &c.state.Pools[k]
		if e := at / n; t.Begun != e+1 {
			t.Begun, t.Open = e+1, []epoch{{e * n, c.order(k, e)}}
		}
		return t.Open[0].Order[at%n]
	}
	c.reach(k, at)
	for _, e := range c.state.Pools[k].Open {
		if at >= e.Start && at < e.end() {
			return e.Order[at-e.Start]
		}
	}
	return c.orders.Index(k, n, at)
}

// reach begins epochs until one holds the position.
func (c *curriculum) reach(k, at int) {
	t := &c.state.Pools[k]
	for at >= t.end() {
		t.Open = append(t.Open, epoch{t.end(), c.order(k, t.Begun)})
		t.Begun++
	}
}

// order makes an epoch.
func (c *curriculum) order(k, number int) []int {
	tasks := c.pools[k]
	r := permutation(c.orders.seed, k, number)
	order := r.Perm(len(tasks))
	known := c.state.Pools[k].Last
	switch c.by {
	case "difficulty":
		if number < c.epochs {
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.numbers[k][a], c.numbers[k][b]) })
		}
	case "mask_count":
		count := func(i int) float64 {
			if l, ok := known[tasks[i].ID]; ok {
				return l.Masked
			}
			return math.Inf(1) // nobody knows how long it is
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(count(a), count(b)) })
	case "success_rate":
		kept := slices.Clone(order)
		kept = slices.DeleteFunc(kept, func(i int) bool {
			l, ok := known[tasks[i].ID]
			return r.Float64() >= chance(l.Success) && ok
		})
		if len(kept) > 0 {
			order = kept
		}
	}
	return order
}

// leastChance is that of a task that always or never succeeds: it may change, and nobody would know.
const leastChance = 0.1

// chance of a task to enter an epoch. The variance p(1-p) of a success is what a group can teach at most.
func chance(p float64) float64 { return max(leastChance, 4*p*(1-p)) }

// observe notes how groups ended, after the epochs of all positions before dealt have begun: those orders are older. Epochs
// before dealt are over.
func (c *curriculum) observe(groups []trajectory.Group, dealt []int) {
	if !c.learns() {
		return
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	for k := range min(len(dealt), len(c.state.Pools)) {
		c.reach(k, dealt[k]-1)
		t := &c.state.Pools[k]
		for len(t.Open) > 1 && t.Open[0].end() <= dealt[k] {
			t.Open = t.Open[1:]
		}
	}
	for _, g := range groups {
		k, ok := c.where[g.Task.ID]
		if l, finished := c.outcome(g); ok && finished {
			c.state.Pools[k].Last[g.Task.ID] = l
		}
	}
}

// outcome of a group; false when no trajectory of it finished.
func (c *curriculum) outcome(g trajectory.Group) (l last, finished bool) {
	n := 0.0
	for _, t := range g.Trajectories {
		if t.Failed() {
			continue
		}
		n++
		l.Masked += float64(t.ResponseTokens())
		if Succeeded(g.Task, t, c.least(t)) {
			l.Success++
		}
	}
	return last{l.Success / n, l.Masked / n}, n > 0
}

// least is the return of a trajectory from which on it succeeds; nil: its answer decides. The penalty of overlong shaping says nothing of
// success, so it is added here too: where it was subtracted from the return, rounding could decide.
func (c *curriculum) least(t *trajectory.Trajectory) *float64 {
	if c.success == nil || !c.shaped {
		return c.success
	}
	shaped := *c.success + t.RewardParts[algorithms.OverlongPart]
	return &shaped
}

// fits tells whether the state is one of this curriculum and data.
func (s *CurriculumState) fits(c *curriculum) bool {
	if s == nil || s.By != c.by || len(s.Pools) != len(c.pools) {
		return false
	}
	for k := range s.Pools {
		n, end := len(c.pools[k]), 0
		for i, e := range s.Pools[k].Open {
			if i > 0 && e.Start != end || slices.ContainsFunc(e.Order, func(i int) bool { return i < 0 || i >= n }) {
				return false
			}
			end = e.end()
		}
		if len(s.Pools[k].Open) == 0 {
			return false
		}
		if s.Pools[k].Last == nil {
			s.Pools[k].Last = map[string]last{}
		}
	}
	return true
}

// MarshalJSON may be called while tasks are dealt.
func (s *CurriculumState) MarshalJSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type plain struct {
		By    string    `json:"by"`
		Pools []tracked `json:"pools"`
	}
	return json.Marshal(plain{s.By, s.Pools})
}
