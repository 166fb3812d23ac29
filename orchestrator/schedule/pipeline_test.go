package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func numbers(slots []*Slot) (out []int) {
	for _, s := range slots {
		out = append(out, s.n)
	}
	return out
}

func complete(t *testing.T, p *pipeline, lowest int32, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		require.NoError(t, p.Complete(n, lowest, true))
	}
}

func batchOf(t *testing.T, p *pipeline) chosen {
	t.Helper()
	b, ok := p.Batch()
	require.True(t, ok)
	return b
}

func waits(t *testing.T, p *pipeline) {
	t.Helper()
	_, ok := p.Batch()
	require.False(t, ok)
}

func TestSyncGoesInRounds(t *testing.T) {
	p := newPipeline(Limits{Groups: 4, Strata: 2, Capacity: 4, Updates: 1, Refills: 1}, 7, 3, 0)
	waits(t, p)
	first := p.Admit()
	require.Equal(t, []int{0, 1, 2, 3}, numbers(first))
	require.Equal(t, []int{0, 0, 1, 1}, []int{first[0].stratum, first[1].stratum, first[2].stratum, first[3].stratum})
	require.Equal(t, []int{7, 3}, []int{first[3].Step, first[3].Group})
	complete(t, p, 3, 3, 0)
	require.NoError(t, p.Complete(1, 3, false))
	require.Empty(t, p.Admit(), "a round waits for all")
	waits(t, p)
	require.NoError(t, p.Complete(2, 3, false))
	waits(t, p)
	second := p.Admit()
	require.Equal(t, []int{4, 5}, numbers(second))
	require.Equal(t, []int{0, 1}, []int{second[0].stratum, second[1].stratum})
	require.Equal(t, []int{7, 4}, []int{second[0].Step, second[0].Group}, "refills count on")
	complete(t, p, 3, 4)
	require.NoError(t, p.Complete(5, 3, false))
	require.Empty(t, p.Admit(), "no more rounds")
	b := batchOf(t, p)
	require.Equal(t, []int{0, 3, 4}, numbers(b.groups), "what there is")
	require.Equal(t, []int{1, 2, 5}, numbers(b.flat))
	require.Equal(t, 1, b.refills)
	require.Empty(t, p.Admit(), "nothing is sampled during the update")
	waits(t, p)
	p.Trained(4)
	next := p.Admit()
	require.Equal(t, []int{6, 7, 8, 9}, numbers(next))
	require.Equal(t, []int{8, 0, 4}, []int{next[0].Step, next[0].Group, int(next[0].version)})
}

// A run that goes on in the fifth round of its step, with fewer refills than it had, samples no more.
func TestAStepGoesOnWithFewerRefills(t *testing.T) {
	for _, most := range []int{4, 2, 0} {
		p := newPipeline(Limits{Groups: 2, Strata: 1, Capacity: 2, Updates: 1, Refills: most}, 7, 3, 10)
		var slots []*Slot
		for n := range 10 {
			slots = append(slots, &Slot{n: n, Step: 7, Group: n, version: 3, complete: true})
		}
		require.Empty(t, p.Restore(slots))
		require.Empty(t, p.Admit(), most)
		b := batchOf(t, p)
		require.Empty(t, b.groups)
		require.Len(t, b.flat, 10)
	}
}

// Groups of a run in mode async that are too old for mode sync are sampled once more, which is no refill; flat ones are not.
func TestGroupsThatAreTooOldForRoundsAreSampledAgain(t *testing.T) {
	for _, c := range []struct{ old, useful, flat, again int }{{2, 0, 0, 2}, {1, 1, 0, 1}, {1, 0, 1, 1}, {4, 1, 0, 1}, {3, 2, 1, 0}} {
		p := newPipeline(Limits{Groups: 2, Strata: 1, Capacity: 2, Updates: 1}, 7, 3, 5)
		var slots []*Slot
		for n := range c.old + c.useful + c.flat {
			s := &Slot{n: n, Step: 7, Group: n, version: 3, complete: n >= c.old, useful: n >= c.old && n < c.old+c.useful}
			if n < c.old {
				s.version = 2
			}
			slots = append(slots, s)
		}
		require.Len(t, p.Restore(slots), c.old)
		again := p.Admit()
		require.Len(t, again, c.again, c)
		for i, s := range again {
			require.Equal(t, i, s.retryOf.n)
		}
		if c.again > 0 {
			waits(t, p)
			complete(t, p, 3, numbers(again)...)
		}
		require.Empty(t, p.Admit())
		b := batchOf(t, p)
		require.Len(t, b.groups, c.useful+c.again)
		require.Len(t, b.flat, c.flat)
		require.Zero(t, b.refills)
	}
}

// A step that began with fewer groups than rollout.groups now says is filled up at once: what is missing of its first round is no refill.
func TestAStepGoesOnWithMoreGroups(t *testing.T) {
	for _, refills := range []int{0, 10} {
		for _, flat := range []bool{false, true} {
			p := newPipeline(Limits{Groups: 6, Strata: 2, Capacity: 6, Updates: 1, Refills: refills}, 7, 3, 3)
			slots := []*Slot{ // one of a stratum and two of the other, as with a refill
				{n: 0, Step: 7, Group: 0, version: 3, complete: flat},
				{n: 1, stratum: 1, Step: 7, Group: 1, version: 3, complete: true, useful: true},
				{n: 2, stratum: 1, Step: 7, Group: 2, version: 3},
			}
			require.Empty(t, p.Restore(slots))
			more := p.Admit()
			require.Equal(t, []int{3, 4, 5}, numbers(more), "beside those that go on")
			require.Equal(t, []int{0, 0, 1}, []int{more[0].stratum, more[1].stratum, more[2].stratum})
			waits(t, p)
			complete(t, p, 3, 2, 3, 4, 5)
			trained := []int{1, 2, 3, 4, 5}
			if !flat {
				complete(t, p, 3, 0)
				trained = []int{0, 1, 2, 3, 4, 5}
			} else if refills > 0 {
				require.Equal(t, []int{6}, numbers(p.Admit()))
				complete(t, p, 3, 6)
				trained = append(trained, 6)
			}
			b := batchOf(t, p)
			require.Equal(t, trained, numbers(b.groups))
			require.Equal(t, flat && refills > 0, b.refills == 1)
		}
	}
}

// failing is a restored group that ended at some version with failed trajectories, which are tried again.
func failing(s Slot, version int32, useful bool) *Slot {
	ended := s
	ended.version, ended.complete, ended.useful = version, true, useful
	s.ended = &ended
	return &s
}

// Rounds before the newest had all ended when it began: what failed in them is not tried again, and costs no refill its place.
func TestFailedGroupsOfEarlierRoundsStayAsTheyEnded(t *testing.T) {
	for _, running := range []bool{false, true} {
		p := newPipeline(Limits{Groups: 2, Strata: 1, Capacity: 2, Updates: 1, Refills: 3}, 7, 3, 5)
		at := func(n int) Slot { return Slot{n: n, Step: 7, Group: n, version: 3} }
		useful, flat, last := at(1), at(2), failing(at(4), 3, true)
		useful.complete, useful.useful, flat.complete = true, true, true
		if running {
			last.ended = nil
		}
		require.Empty(t, p.Restore([]*Slot{failing(at(0), 3, false), &useful, &flat, failing(at(3), 3, false), last}))
		require.Equal(t, []int{1, 4}, numbers(p.open))
		require.Equal(t, []int{0, 2, 3}, numbers(p.flat))
		require.Equal(t, 3, p.refills)
		require.Empty(t, p.Admit())
		waits(t, p) // the newest round's are tried again
		complete(t, p, 3, 4)
		b := batchOf(t, p)
		require.Equal(t, []int{1, 4}, numbers(b.groups))
		require.Equal(t, 3, b.refills)
	}
}

// Without rounds a flat group with failed trajectories is open again where it has a place beside what was admitted since. Else it stays as it ended.
func TestAFailedGroupIsNotTriedAgainForTheCostOfAnother(t *testing.T) {
	at := func(n int) Slot { return Slot{n: n, Step: n / 2, Group: n % 2} }
	for _, c := range []struct {
		name    string
		limits  Limits
		version int32 // that samples
		ended   int32 // lowest of the failed group's tokens
		useful  bool  // the failed group
		others  int
		again   bool
		givenUp []int
	}{
		{"flat, a free place", Limits{Capacity: 6, Staleness: 2}, 0, 0, false, 5, true, nil},
		{"flat, no place", Limits{Capacity: 6, Staleness: 2}, 0, 0, false, 6, false, nil},
		{"flat, no place among those that are admitted", Limits{Capacity: 4, Staleness: 2}, 0, 0, false, 4, false, nil},
		{"flat, of which no step may be in time", Limits{Capacity: 6, Staleness: 2}, 3, 3, false, 0, false, nil},
		{"useful", Limits{Capacity: 6, Staleness: 2}, 2, 1, true, 0, true, nil},
		{"useful, in time by its tokens alone", Limits{Capacity: 6, Staleness: 2}, 3, 1, true, 0, false, nil},
		{"useful, which is late in any case", Limits{Capacity: 6, Staleness: 2}, 4, 1, true, 0, true, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.limits.Groups, c.limits.Strata, c.limits.Updates, c.limits.Refills, c.limits.Numbered = 2, 1, 1, 3, true
			p := newPipeline(c.limits, 0, c.version, 7)
			slots := []*Slot{failing(at(0), c.ended, c.useful)}
			for n := range c.others {
				s := at(n + 1)
				s.complete, s.useful = true, true
				slots = append(slots, &s)
			}
			require.Equal(t, c.givenUp, numbers(p.Restore(slots)))
			require.Equal(t, c.again, !slots[0].complete)
			flat := 0
			if !c.useful && !c.again {
				flat = 1
			}
			require.Len(t, p.flat, flat)
			require.Equal(t, flat, p.refills)
			require.Len(t, p.open, 1+c.others-flat-len(c.givenUp))
		})
	}
}

func TestAsyncOverlapsWithinTheBound(t *testing.T) {
	p := newPipeline(Limits{Groups: 2, Strata: 1, Capacity: 6, Staleness: 2, Updates: 1, Numbered: true, Steps: 100}, 0, 0, 0)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, numbers(p.Admit()))
	complete(t, p, 0, 4)
	waits(t, p)
	complete(t, p, 0, 5)
	b := batchOf(t, p)
	require.Equal(t, []int{4, 5}, numbers(b.groups), "out of order")
	require.Equal(t, []int{0, 1, 2, 3}, numbers(b.left))
	require.Empty(t, p.Admit(), "four groups of version 0 for two more steps")
	p.Trained(1)
	more := p.Admit()
	require.Equal(t, []int{6, 7}, numbers(more))
	require.Equal(t, []int{3, 1}, []int{more[1].Step, more[1].Group})
	complete(t, p, 1, 6, 7)
	waits(t, p) // four groups may be trained at version 2 at last: two of them must be of this batch
	complete(t, p, 0, 2)
	waits(t, p)
	complete(t, p, 0, 0)
	require.Equal(t, []int{0, 2}, numbers(batchOf(t, p).groups), "the oldest version first")
	p.Trained(2)
	p.Admit()
	waits(t, p) // 1 and 3 must be of this batch
	complete(t, p, 0, 3, 1)
	require.Equal(t, []int{1, 3}, numbers(batchOf(t, p).groups))
}

func TestWhatCannotBeTrainedInTimeIsGivenUp(t *testing.T) {
	p := newPipeline(Limits{Groups: 2, Strata: 1, Capacity: 4, Staleness: 1, Updates: 1, Numbered: true, Drop: true, Steps: 100}, 0, 0, 0)
	p.Admit()
	complete(t, p, 0, 2, 3)
	require.Empty(t, batchOf(t, p).dropped)
	p.Trained(1)
	require.Equal(t, []int{4, 5}, numbers(p.Admit()))
	complete(t, p, 1, 4, 5)
	b := batchOf(t, p)
	require.Equal(t, []int{4, 5}, numbers(b.groups))
	require.Equal(t, []int{0, 1}, numbers(b.dropped), "they would be two versions old")
	retried := p.Admit()
	require.Equal(t, []int{6, 7}, numbers(retried))
	require.Equal(t, []int{0, 1}, []int{retried[0].retryOf.n, retried[1].retryOf.n}, "their tasks come again")
	p.Trained(2)
	require.Nil(t, p.Admit()[0].retryOf)
}

func TestALowestTokenOfALaterVersionLeavesMoreTime(t *testing.T) {
	p := newPipeline(Limits{Groups: 1, Strata: 1, Capacity: 3, Staleness: 2, Updates: 1, Numbered: true, Steps: 100}, 0, 0, 0)
	p.Admit()
	complete(t, p, 0, 0)
	require.Equal(t, []int{0}, numbers(batchOf(t, p).groups))
	complete(t, p, 1, 1) // its first token was sampled after the optimizer's write
	p.Trained(1)
	p.Admit()
	complete(t, p, 1, 3)
	require.Equal(t, []int{1}, numbers(batchOf(t, p).groups))
	p.Trained(2)
	p.Admit()
	waits(t, p)
	complete(t, p, 0, 2)
	require.Equal(t, []int{2}, numbers(batchOf(t, p).groups))
	require.ErrorContains(t, p.Complete(2, 0, true), "group 2 ended, but it is not outstanding")
	require.ErrorContains(t, p.Complete(4, 1, true), "admitted at policy version 2, but the engine says that version 1 sampled")
}

func TestStepsOfSeveralVersions(t *testing.T) {
	l := Limits{Groups: 1, Strata: 1, Staleness: 5, Updates: 2, Numbered: true, Steps: 100, Capacity: 3}
	p := newPipeline(l, 0, 0, 0)
	require.Len(t, p.Admit(), 3)
	complete(t, p, 0, 2)
	batchOf(t, p)
	p.Trained(2)
	p.Admit()
	complete(t, p, 2, 3)
	waits(t, p) // of two groups with versions 0, one must be trained at 2: 0 + 5 - 4 leaves no further step
	complete(t, p, 0, 1)
	require.Equal(t, []int{1}, numbers(batchOf(t, p).groups))
}

func TestTheLastStepsAdmitNoMoreThanTheyTrain(t *testing.T) {
	p := newPipeline(Limits{Groups: 2, Strata: 1, Capacity: 8, Staleness: 3, Updates: 1, Numbered: true, Steps: 3}, 0, 0, 0)
	require.Len(t, p.Admit(), 6)
}

func TestOverSamplingKeepsWhatItCuts(t *testing.T) {
	p := newPipeline(Limits{Groups: 4, Strata: 2, Capacity: 6, Staleness: 1, Updates: 1}, 0, 0, 0)
	first := p.Admit()
	require.Len(t, first, 6)
	complete(t, p, 0, 0, 2, 4, 5)
	b := batchOf(t, p)
	require.Equal(t, []int{0, 2, 4, 5}, numbers(b.groups))
	require.Equal(t, []int{1, 3}, numbers(b.left))
	p.Trained(1)
	second := p.Admit()
	require.Len(t, second, 4)
	require.Equal(t, []int{1, 0}, []int{second[0].Step, second[0].Group}, "the round in which it was admitted")
	complete(t, p, 1, 6, 7, 8, 9)
	waits(t, p)
	complete(t, p, 0, 1, 3)
	require.Equal(t, []int{1, 3, 6, 8}, numbers(batchOf(t, p).groups), "the cut ones come first")
}

// simulation drives a pipeline by chance and keeps its own books.
type simulation struct {
	t         *testing.T
	rng       *rand.Rand
	l         Limits
	p         *pipeline
	version   int32 // that the engine samples with
	dynamic   bool
	fate      map[int]string
	strata    map[int]int
	places    map[[2]int]bool
	retried   map[int]int // dropped group -> who took its task
	dropped   []int
	trained   int
	staleness int
	behind    int // most that was told
	began     map[int]int32
	newest    int // first group of the last admission
	again     int // groups with failed trajectories that were tried again
}

func (s *simulation) say(format string, args ...any) string {
	return fmt.Sprintf("%+v: ", s.l) + fmt.Sprintf(format, args...)
}

func (s *simulation) admit() {
	admitted := s.p.Admit()
	if len(admitted) > 0 {
		s.newest = admitted[0].n
	}
	for _, g := range admitted {
		require.NotContains(s.t, s.fate, g.n, s.say("admitted twice"))
		s.began[g.n] = g.version
		s.fate[g.n], s.strata[g.n] = "running", g.stratum
		place := [2]int{g.Step, g.Group}
		require.False(s.t, s.places[place], s.say("place %v is taken", place))
		s.places[place] = true
		if old := g.retryOf; old != nil {
			require.NotContains(s.t, s.retried, old.n, s.say("task %d came twice", old.n))
			require.Equal(s.t, "dropped", s.fate[old.n])
			require.Equal(s.t, s.strata[old.n], g.stratum)
			s.retried[old.n] = g.n
		}
	}
	require.LessOrEqual(s.t, s.count("running")+s.count("complete")+s.count("training"), s.l.Capacity, s.say("too many outstanding"))
	s.counts()
}

// counts holds what is told of the groups against the books.
func (s *simulation) counts() {
	g := s.p.Groups()
	require.Equal(s.t, [3]int{s.count("running"), s.count("complete"), s.count("training")}, [3]int{g.Sampling, g.Ended, g.Training}, s.say("being sampled, ended, in training"))
	require.Equal(s.t, [3]int{s.l.Groups, s.l.Capacity, s.l.Staleness}, [3]int{g.Batch, g.Most, g.Staleness})
	require.LessOrEqual(s.t, g.Behind, s.l.Staleness, s.say("a group that cannot be trained any more"))
	s.behind = max(s.behind, g.Behind)
}

func (s *simulation) count(fate string) (n int) {
	for _, f := range s.fate {
		if f == fate {
			n++
		}
	}
	return n
}

// finishOne ends a random running group, if there is one.
func (s *simulation) finishOne() bool {
	running := s.p.open[:0:0]
	for _, g := range s.p.open {
		if !g.complete {
			running = append(running, g)
		}
	}
	if len(running) == 0 {
		return false
	}
	g := running[s.rng.IntN(len(running))]
	lowest := int32(-1) // all failed
	if s.rng.IntN(10) > 0 {
		lowest = g.version + int32(s.rng.IntN(int(s.version-g.version)+1))
	}
	useful := !s.dynamic || s.rng.IntN(3) > 0
	require.NoError(s.t, s.p.Complete(g.n, lowest, useful))
	s.fate[g.n] = "complete"
	if !useful {
		s.fate[g.n] = "flat"
	}
	return true
}

func (s *simulation) take() bool {
	b, ok := s.p.Batch()
	if !ok {
		return false
	}
	require.LessOrEqual(s.t, len(b.groups), s.l.Groups)
	each := map[int]int{}
	for _, g := range b.groups {
		require.Equal(s.t, "complete", s.fate[g.n], s.say("group %d", g.n))
		s.fate[g.n] = "training"
		each[g.stratum]++
		staleness := int(b.version - g.version)
		s.staleness = max(s.staleness, staleness)
		require.LessOrEqual(s.t, staleness, s.l.Staleness, s.say("group %d is too stale", g.n))
	}
	for k := range s.l.Strata {
		if !s.dynamic {
			require.Equal(s.t, s.l.Each(), each[k], s.say("the balance of step %d", b.step))
		}
		require.LessOrEqual(s.t, each[k], s.l.Each())
	}
	require.True(s.t, slices.IsSortedFunc(b.groups, func(a, b *Slot) int { return a.n - b.n }))
	require.True(s.t, s.l.Drop || len(b.dropped) == 0)
	for _, g := range b.dropped {
		require.Equal(s.t, "running", s.fate[g.n], s.say("a finished group was dropped"))
		s.fate[g.n] = "dropped"
		s.dropped = append(s.dropped, g.n)
	}
	return true
}

// restore goes on with a pipeline that knows only what the other had outstanding.
func (s *simulation) restore() {
	var slots []*Slot
	for n := range s.p.next {
		for _, g := range slices.Concat(s.p.open, s.p.flat) {
			if g.n == n {
				c := *g
				slots = append(slots, &c)
				if c.complete && s.rng.IntN(4) == 0 { // some of it failed
					begun := c
					begun.version, begun.complete, begun.useful = s.began[n], false, false
					slots[len(slots)-1] = failing(begun, c.version, c.useful)
				}
			}
		}
	}
	old := s.p
	s.p = newPipeline(s.l, old.step, old.version, old.next)
	s.p.taken = map[int]int{old.step: max(old.inStep, old.taken[old.step])}
	require.Empty(s.t, s.p.Restore(slots), s.say("a restored group is too stale"))
	refills := old.refills
	for _, g := range slots {
		if fate := s.fate[g.n]; !g.complete && fate != "running" { // what failed is tried again
			s.again++
			s.fate[g.n] = "running"
			switch {
			case s.l.rounds():
				require.GreaterOrEqual(s.t, g.n, s.newest, s.say("a group of an earlier round is tried again"))
			case fate == "flat":
				refills-- // until it has ended again
			}
		}
	}
	for k := range old.retries {
		s.p.retries[k] = slices.Clone(old.retries[k])
	}
	require.Equal(s.t, old.begun && len(slots) > 0, s.p.begun)
	require.Equal(s.t, refills, s.p.refills, s.say("refills"))
}

func (s *simulation) update() {
	for range s.l.Updates {
		for range s.rng.IntN(2 * s.l.Groups) {
			s.admit()
			s.finishOne()
		}
		if s.rng.IntN(10) > 0 { // else this optimizer step was passed over
			s.version++
		}
	}
	s.p.Trained(s.version)
	for n, fate := range s.fate {
		if fate == "training" {
			s.fate[n] = "trained"
			s.trained++
		}
	}
}

// However groups end, a run gets through all its steps, trains no group beyond the bound, and loses or doubles none.
func TestRandomSchedules(t *testing.T) {
	stale, behind, dropped, partial, again := 0, 0, 0, 0, 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := Limits{Strata: 1 + rng.IntN(3), Updates: 1 + rng.IntN(3), Refills: rng.IntN(4), Drop: rng.IntN(2) == 0}
		l.Groups = l.Strata * (1 + rng.IntN(4))
		steps := 3 + rng.IntN(10)
		switch rng.IntN(3) {
		case 0: // sync
			l.Capacity = l.Groups
		case 1: // over-sampling
			l.Staleness = l.Updates * (1 + rng.IntN(4))
			l.Capacity = l.Groups + l.Strata*rng.IntN(l.Staleness/l.Updates*l.Each()+1)
		case 2: // async
			l.Staleness = l.Updates + rng.IntN(8)
			l.Capacity, l.Numbered, l.Steps = (1+l.Staleness/l.Updates)*l.Groups, true, steps
		}
		s := &simulation{t: t, rng: rng, l: l, p: newPipeline(l, 0, 0, 0), dynamic: rng.IntN(2) == 0, fate: map[int]string{}, strata: map[int]int{}, places: map[[2]int]bool{}, retried: map[int]int{}, began: map[int]int32{}}
		full := 0
		for step := range steps {
			for !s.take() {
				s.admit()
				if s.rng.IntN(20) == 0 {
					s.restore()
				}
				if !s.finishOne() {
					require.True(t, s.take(), s.say("seed %d: step %d waits for nothing", seed, step))
					break
				}
			}
			full += l.Groups
			s.update()
		}
		require.Equal(t, steps, s.p.step)
		require.Equal(t, s.p.next, len(s.fate), s.say("every admitted group has one fate"))
		waiting := 0
		for _, q := range s.p.retries {
			waiting += len(q)
		}
		require.Equal(t, len(s.dropped), len(s.retried)+waiting, s.say("every dropped task comes again, once"))
		if l.Steps > 0 && !s.dynamic {
			require.Equal(t, full, s.trained)
			require.Zero(t, s.count("running")+s.count("complete"), s.say("nothing was sampled in vain"))
		}
		if l.rounds() {
			require.Zero(t, s.staleness)
		}
		stale, behind, dropped, again = max(stale, s.staleness), max(behind, s.behind), dropped+len(s.dropped), again+s.again
		if s.trained < full {
			partial++
		}
	}
	require.Greater(t, stale, 5, "the simulation comes near the bound")
	require.Greater(t, behind, 5)
	require.Greater(t, dropped, 150)
	require.Greater(t, partial, 50)
	require.Greater(t, again, 100)
	t.Logf("largest staleness %d, %d groups dropped, %d runs with batches that were not full", stale, dropped, partial)
}

func TestCeil(t *testing.T) {
	require.Equal(t, []int{11, 12, 4, 5}, []int{ceil(1.1 * 10), ceil(1.11 * 10), ceil(4), ceil(4.01)})
}
