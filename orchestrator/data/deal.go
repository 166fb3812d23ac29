package data

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// Dealer deals tasks: a seeded shuffle without replacement, anew for every epoch. With data.balance every value of that
// field is a stratum of its own, and a step takes the same number of each. Several sources are one stratum, in which they
// take turns as their weights say; each is dealt through epochs of its own. With data.spread the values of a field take turns
// within each of these. What is dealt at a position depends on the seed and the position, and with a curriculum that learns
// from the run on its state, which is part of the checkpoint: a resumed run is dealt the same tasks.
type Dealer struct {
	Strata     [][]trajectory.Task
	orders     Orders
	mix        *mixture    // of the sources; nil: there is one, or strata
	curriculum *curriculum // nil: every epoch in a random order
	spread     *spread     // nil: every epoch holds each task of the pool once
}

func NewDealer(data *Tasks, d job.Data, groups int, seed uint64) (*Dealer, error) {
	s := &Dealer{orders: Orders{seed: seed}, Strata: [][]trajectory.Task{data.Tasks}}
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
		curriculum, err := newCurriculum(*d.Curriculum, data.Path, d.Success, s.pools(), seed)
		if err != nil {
			return nil, err
		}
		s.curriculum = curriculum
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
func (s *Dealer) pools() [][]trajectory.Task {
	if s.mix != nil {
		return s.mix.pools
	}
	return s.Strata
}

// reached is where each pool is when the strata are at the positions dealt.
func (s *Dealer) reached(dealt []int) []int {
	if s.mix != nil && len(dealt) == 1 {
		return s.mix.counts(dealt[0])
	}
	return dealt
}

// balance makes a stratum of each value of a field.
func (s *Dealer) balance(data *Tasks, field string, groups int) error {
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
	s.Strata = nil
	for _, v := range values {
		s.Strata = append(s.Strata, byValue[v])
	}
	return nil
}

// mixture is several sources that take turns.
type mixture struct {
	pools   [][]trajectory.Task
	weights []int      // of the job
	rounds  []rotation // in the order of their positions, the first from 0: a run that goes on with other weights has several
}

// Weights are those of the sources of data.train from a position of the deal on.
type Weights struct {
	From    int   `json:"from"`
	Weights []int `json:"weights"`
}

// rotation is the turns that sources take by the same weights.
type rotation struct {
	Weights
	pattern []int // the pool of each position, over and over
	before  []int // [pattern] places of the same pool before this one
	each    []int // [pools] places in the pattern
	begun   []int // [pools] the pool's own position where the rotation begins
}

func newMixture(sources []Tasks, weights []int) *mixture {
	m := &mixture{weights: weights}
	for _, s := range sources {
		m.pools = append(m.pools, s.Tasks)
	}
	m.rotate([]Weights{{0, weights}})
	return m
}

// rotate has the sources take turns by these weights. Each source goes on where the turns before left it.
func (m *mixture) rotate(all []Weights) {
	m.rounds = nil
	for _, w := range all {
		r := rotation{Weights: w, pattern: turns(w.Weights), each: make([]int, len(m.pools)), begun: make([]int, len(m.pools))}
		if len(m.rounds) > 0 {
			r.begun = m.counts(w.From)
		}
		for _, k := range r.pattern {
			r.before = append(r.before, r.each[k])
			r.each[k]++
		}
		m.rounds = append(m.rounds, r)
	}
}

// at is the rotation that a position lies in.
func (m *mixture) at(position int) *rotation {
	k := len(m.rounds) - 1
	for m.rounds[k].From > position {
		k--
	}
	return &m.rounds[k]
}

// place is the pool that gets a position of the mixture, and the position in that pool.
func (m *mixture) place(at int) (pool, in int) {
	r := m.at(at)
	round, i := (at-r.From)/len(r.pattern), (at-r.From)%len(r.pattern)
	pool = r.pattern[i]
	return pool, r.begun[pool] + round*r.each[pool] + r.before[i]
}

// counts is how many of the first n positions are each pool's.
func (m *mixture) counts(n int) []int {
	r := m.at(n)
	out := slices.Clone(r.begun)
	for k := range out {
		out[k] += (n - r.From) / len(r.pattern) * r.each[k]
	}
	for _, k := range r.pattern[:(n-r.From)%len(r.pattern)] {
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

// Tasks returns the n tasks of a step in a run whose every step takes as many.
func (s *Dealer) Tasks(step, n int) []trajectory.Task {
	each := n / len(s.Strata)
	var out []trajectory.Task
	for k := range s.Strata {
		for i := range each {
			out = append(out, s.Task(k, step*each+i))
		}
	}
	return out
}

// Task is what a stratum deals at a position, from 0, over all epochs. With a curriculum that learns from the run positions
// come in order.
func (s *Dealer) Task(stratum, at int) trajectory.Task {
	pool := stratum
	if s.mix != nil {
		pool, at = s.mix.place(at)
	}
	all := s.pools()[pool]
	if s.spread != nil {
		return all[s.spread.index(pool, at)]
	}
	if s.curriculum != nil {
		return all[s.curriculum.index(pool, at)]
	}
	return all[s.orders.Index(pool, len(all), at)]
}

// Reweigh has a run that was dealt so many tasks go on with the job's weights of its sources: was is what Reweigh returned when the run was worked on
// before, nil where it was not or an older program did. What was dealt before stays each source's by the weights of then, so that no task comes twice
// in an epoch. It returns the weights of the whole run; nil: there are not several sources.
func (s *Dealer) Reweigh(was []Weights, dealt int) []Weights {
	if s.mix == nil {
		return nil
	}
	now := slices.DeleteFunc(slices.Clone(was), func(w Weights) bool { return w.From >= dealt || len(w.Weights) != len(s.mix.pools) })
	switch {
	case len(now) == 0:
		now = []Weights{{0, s.mix.weights}}
	case !slices.Equal(now[len(now)-1].Weights, s.mix.weights):
		now = append(now, Weights{dealt, s.mix.weights})
	}
	s.mix.rotate(now)
	return now
}

// Observe tells the curriculum what became of the groups of a batch; dealt is the position of each stratum when the batch
// was taken: what lies before was dealt without this knowledge, what lies behind with it. So a recovery that calls it for each
// batch in the order of training comes to the same state.
func (s *Dealer) Observe(groups []trajectory.Group, dealt []int) {
	if s.curriculum != nil {
		s.curriculum.observe(groups, s.reached(dealt))
	}
}

// Resume goes on with what a curriculum knew at a checkpoint after some steps, when the strata were at the positions dealt, and
// returns what it knows from now on: nil where there is none that learns.
func (s *Dealer) Resume(was *CurriculumState, steps int, dealt []int) *CurriculumState {
	if s == nil || s.curriculum == nil || !s.curriculum.learns() {
		return was
	}
	if was.fits(s.curriculum) {
		s.curriculum.state = was
	} else if steps > 0 { // the job had no such curriculum before
		for k, at := range s.reached(dealt) {
			if k < len(s.curriculum.state.Pools) {
				s.curriculum.state.Pools[k].Open[0].Start = at
			}
		}
	}
	return s.curriculum.state
}

// Positions is where each stratum goes on after some steps of each tasks a stratum, when a checkpoint says dealt.
func (s *Dealer) Positions(dealt []int, steps, each int) []int {
	if len(dealt) == len(s.Strata) {
		return slices.Clone(dealt)
	}
	return slices.Repeat([]int{steps * each}, len(s.Strata))
}

// Orders are the orders that strata of things are dealt in: every epoch of a stratum is a seeded permutation of its own. Of each stratum the two
// permutations that were made last are kept, because rollouts of one epoch are still asked for when the next has begun. It is safe for concurrent use.
type Orders struct {
	seed uint64
	mu   sync.Mutex
	kept map[int][2]permuted // by stratum, the newer one first
}

// permuted is the order of an epoch.
type permuted struct {
	epoch int
	order []int
}

// NewOrders makes the orders of a seed.
func NewOrders(seed uint64) *Orders { return &Orders{seed: seed} }

// Index is the index among the n things of a stratum that a position gets.
func (o *Orders) Index(stratum, n, at int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.kept[stratum]
	for _, p := range kept {
		if p.epoch == at/n && len(p.order) == n {
			return p.order[at%n]
		}
	}
	if o.kept == nil {
		o.kept = map[int][2]permuted{}
	}
	made := permuted{at / n, permutation(o.seed, stratum, at/n).Perm(n)}
	o.kept[stratum] = [2]permuted{made, kept[0]}
	return made.order[at%n]
}

// permutation is the source of an epoch's order.
func permutation(seed uint64, stratum, epoch int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(stratum)<<32|uint64(epoch)))
}
