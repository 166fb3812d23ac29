package orchestrator

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// sampler deals tasks: a seeded shuffle without replacement, anew for every epoch. With data.balance every value of that
// field is a stratum of its own, and a step takes the same number of each. Several sources are one stratum, in which they
// take turns as their weights say; each is dealt through epochs of its own. With data.spread the values of a field take turns
// within each of these. What is dealt at a position depends on the seed and the position, and with a curriculum that learns
// from the run on its standing, which is part of the checkpoint: a resumed run is dealt the same tasks.
type sampler struct {
	strata [][]trajectory.Task
	seed   uint64
	mix    *mixture // of the sources; nil: there is one, or strata
	course *course  // nil: every epoch in a random order
	spread *spread  // nil: every epoch holds each task of the pool once
}

func newSampler(data *Tasks, d job.Data, groups int, seed uint64) (*sampler, error) {
	s := &sampler{seed: seed, strata: [][]trajectory.Task{data.Tasks}}
	switch {
	case d.Balance != "":
		if err := s.balance(data, d.Balance, groups); err != nil {
			return nil, err
		}
	case len(data.Sources) > 0:
		var weights []int
		for i := range data.Sources {
			weights = append(weights, max(1, d.Train[i].Weight))
		}
		s.mix = newMixture(data.Sources, weights)
	}
	if d.Curriculum != nil {
		course, err := newCourse(*d.Curriculum, data, d, s)
		if err != nil {
			return nil, err
		}
		s.course = course
	}
	if d.Spread != "" {
		spread, err := newSpread(data, d.Spread, s.pools(), seed)
		if err != nil {
			return nil, err
		}
		s.spread = spread
	}
	return s, nil
}

// pools are what is dealt through epochs: the sources, or the strata.
func (s *sampler) pools() [][]trajectory.Task {
	if s.mix != nil {
		return s.mix.pools
	}
	return s.strata
}

// reached is where each pool is when the strata are at the positions dealt.
func (s *sampler) reached(dealt []int) []int {
	if s.mix != nil && len(dealt) == 1 {
		return s.mix.counts(dealt[0])
	}
	return dealt
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
	return nil
}

// mixture is several sources that take turns.
type mixture struct {
	pools   [][]trajectory.Task
	pattern []int // the pool of each position, over and over
	before  []int // [pattern] places of the same pool before this one
	each    []int // [pools] places in the pattern
}

func newMixture(sources []Tasks, weights []int) *mixture {
	m := &mixture{pattern: turns(weights), each: make([]int, len(sources))}
	for _, s := range sources {
		m.pools = append(m.pools, s.Tasks)
	}
	for _, k := range m.pattern {
		m.before = append(m.before, m.each[k])
		m.each[k]++
	}
	return m
}

// place is the pool that gets a position of the mixture, and the position in that pool.
func (m *mixture) place(at int) (pool, in int) {
	round, i := at/len(m.pattern), at%len(m.pattern)
	return m.pattern[i], round*m.each[m.pattern[i]] + m.before[i]
}

// counts is how many of the first n positions are each pool's.
func (m *mixture) counts(n int) []int {
	out := make([]int, len(m.pools))
	for k := range out {
		out[k] = n / len(m.pattern) * m.each[k]
	}
	for _, k := range m.pattern[:n%len(m.pattern)] {
		out[k]++
	}
	return out
}

// turns spreads things evenly over a pattern in which each comes as often as its weight, without common factors: the next
// place goes to the one whose share is the furthest behind (Webster's method: the largest weight/(2·given+1), the first of
// equals).
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

// tasks returns the n tasks of a step in a run whose every step takes as many.
func (s *sampler) tasks(step, n int) []trajectory.Task {
	each := n / len(s.strata)
	var out []trajectory.Task
	for k := range s.strata {
		for i := range each {
			out = append(out, s.task(k, step*each+i))
		}
	}
	return out
}

// task is what a stratum deals at a position, from 0, over all epochs. With a curriculum that learns from the run positions
// come in order.
func (s *sampler) task(stratum, at int) trajectory.Task {
	pool := stratum
	if s.mix != nil {
		pool, at = s.mix.place(at)
	}
	all := s.pools()[pool]
	if s.spread != nil {
		return all[s.spread.index(pool, at)]
	}
	if s.course != nil {
		return all[s.course.index(pool, at)]
	}
	return all[deal(s.seed, pool, len(all), at)]
}

// observe tells the curriculum what became of the groups of a batch; dealt is the position of each stratum when the batch
// was taken: what lies before was dealt without this knowledge, what lies behind with it. So a recovery that calls it for each
// batch in the order of training comes to the same standing.
func (s *sampler) observe(groups []trajectory.Group, dealt []int) {
	if s.course != nil {
		s.course.observe(groups, s.reached(dealt))
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
		for k, at := range s.reached(from.Dealt) {
			if k < len(s.course.standing.Pools) {
				s.course.standing.Pools[k].Open[0].Start = at
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
