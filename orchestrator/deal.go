package orchestrator

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// sampler deals tasks: a seeded shuffle without replacement, anew for every epoch. The strata (the values of the field that
// data.balance names, or the sources of data.train) are dealt each by itself and take turns as their weights say. What is
// dealt at a position depends on the seed and the position, and with a curriculum that learns from the run on its standing,
// which is part of the checkpoint: a resumed run is dealt the same tasks.
type sampler struct {
	strata  [][]trajectory.Task
	seed    uint64
	pattern []int   // the stratum of each slot, over and over; nil: one stratum
	course  *course // nil: none
}

func newSampler(data *Tasks, d job.Data, groups int, seed uint64) (*sampler, error) {
	s := &sampler{seed: seed, strata: [][]trajectory.Task{data.Tasks}}
	var err error
	switch {
	case d.Balance != "":
		err = s.balance(data, d.Balance, groups)
	case len(data.Sources) > 0:
		s.strata = nil
		var weights []int
		for i, source := range data.Sources {
			s.strata = append(s.strata, source.Tasks)
			weights = append(weights, max(1, d.Train[i].Weight))
		}
		s.pattern = turns(weights)
	}
	if err == nil && d.Curriculum != nil {
		s.course, err = newCourse(*d.Curriculum, data, d, s)
	}
	return s, err
}

// balance makes a stratum of each value of a field.
func (s *sampler) balance(data *Tasks, field string, groups int) error {
	byValue := map[string][]trajectory.Task{}
	var values []string
	for _, t := range data.Tasks {
		v, ok := t.Fields[field].(string)
		if !ok {
			return fmt.Errorf("%s: task %q has no text in the field %q that data.balance names", data.Path, t.ID, field)
		}
		if byValue[v] == nil {
			values = append(values, v)
		}
		byValue[v] = append(byValue[v], t)
	}
	if groups%len(values) != 0 {
		return fmt.Errorf("%s: data.balance: %s has %d values, so rollout.groups must be a multiple of %d, not %d", data.Path, field, len(values), len(values), groups)
	}
	slices.Sort(values)
	s.strata = nil
	for _, v := range values {
		s.strata = append(s.strata, byValue[v])
	}
	s.pattern = turns(slices.Repeat([]int{1}, len(values)))
	return nil
}

// turns spreads strata evenly over a pattern in which each comes as often as its weight: the next slot goes to the one whose
// share is the furthest behind (Webster's divisors: the largest weight/(2·given+1), the first of equals). After any number
// of slots a stratum has its share, off by less than one slot.
func turns(weights []int) []int {
	shared := 0
	for _, w := range weights {
		shared = gcd(shared, w)
	}
	total := 0
	for _, w := range weights {
		total += w / shared
	}
	given := make([]int, len(weights))
	out := make([]int, total)
	for i := range out {
		best := 0
		for k, w := range weights {
			if w*(2*given[best]+1) > weights[best]*(2*given[k]+1) {
				best = k
			}
		}
		given[best]++
		out[i] = best
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// counts is how many of the first slots of a run are each stratum's.
func (s *sampler) counts(slots int) []int {
	out := make([]int, len(s.strata))
	if len(s.strata) == 1 {
		out[0] = slots
		return out
	}
	for i, k := range s.pattern {
		out[k] += slots / len(s.pattern)
		if i < slots%len(s.pattern) {
			out[k]++
		}
	}
	return out
}

// shares is how many tasks of each stratum the n slots of a step are.
func (s *sampler) shares(step, n int) []int {
	before, after := s.counts(step*n), s.counts((step+1)*n)
	for k := range after {
		after[k] -= before[k]
	}
	return after
}

// stratum of a slot.
func (s *sampler) stratum(slot int) int {
	if len(s.strata) == 1 {
		return 0
	}
	return s.pattern[slot%len(s.pattern)]
}

// tasks returns the n tasks of a step in a run whose every step takes as many.
func (s *sampler) tasks(step, n int) []trajectory.Task {
	at, shares := s.counts(step*n), s.shares(step, n)
	var out []trajectory.Task
	for k := range s.strata {
		for i := range shares[k] {
			out = append(out, s.task(k, at[k]+i))
		}
	}
	return out
}

// task is what a stratum deals at a position, from 0, over all epochs. With a curriculum positions come in order.
func (s *sampler) task(k, at int) trajectory.Task {
	if s.course != nil {
		return s.strata[k][s.course.index(k, at)]
	}
	return s.strata[k][deal(s.seed, k, len(s.strata[k]), at)]
}

// observe tells the curriculum what became of the groups of a batch; dealt is the position of each stratum when the batch
// was complete. Called for each batch in the order of training, also when a recovery trains it again, it leaves the same
// standing whatever was dealt meanwhile.
func (s *sampler) observe(groups []trajectory.Group, dealt []int) {
	if s.course != nil {
		s.course.observe(groups, dealt)
	}
}

// resume goes on with the standing of a checkpoint, or puts the new run's into its state.
func (s *sampler) resume(from *state) {
	if s == nil || s.course == nil || !s.course.learns() {
		return
	}
	if from.Curriculum.fits(s.course) {
		s.course.standing = from.Curriculum
	} else if from.Step > 0 { // the job had no such curriculum before
		for k, at := range from.Dealt {
			if k < len(s.course.standing.Strata) {
				s.course.standing.Strata[k].Start = at
			}
		}
	}
	from.Curriculum = s.course.standing
}

// deal is the index among n things that a position gets: every epoch is a seeded permutation of its own.
func deal(seed uint64, stratum, n, at int) int {
	return permutation(seed, stratum, at/n).Perm(n)[at%n]
}

// permutation is the source of an epoch's order.
func permutation(seed uint64, stratum, epoch int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(stratum)<<32|uint64(epoch)))
}
