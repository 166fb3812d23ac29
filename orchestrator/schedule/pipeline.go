package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// pipeline decides which groups are sampled, which of them a step trains, and which are given up. It is pure: no clock, no
// engine, no goroutine; whoever holds it tells it what happened and does what it says. docs/async.md has the rules.
//
//	Admit ─► (sampled elsewhere) ─► Complete ─► Batch ─► (trained elsewhere) ─► Trained
//
// A group is outstanding from Admit until the update that trains it is done, or until it is given up. Mode sync with
// oversample 1 goes in rounds: a step admits its groups, and with dynamic sampling further ones in place of those without
// use once all have ended. Otherwise groups are admitted as soon as there is room.
//
// The bound: what samples has version v, a step raises it by at most Updates, and a group whose lowest token has version l
// may be trained while v - l <= Staleness. So a group can wait for slack = (l + Staleness - v)/Updates further steps, and
// there must be a step for every group: of the groups left after a batch, at most (i+1)*each have slack i or less, for
// every i >= 0. Batch waits, or gives groups up, until that is so; Admit keeps it, since a new group has the most slack and
// there are never more than Capacity.
type pipeline struct {
	limits   Limits
	step     int         // of the next batch
	version  int32       // of the weights that sample; during an update, before it
	training bool        // a batch was handed out and is not trained yet
	handed   int         // groups in the update
	next     int         // running number of the next group
	inStep   int         // groups admitted for the next batch's step so far: ids of sync count them
	taken    map[int]int // by step: numbers of groups that a process before this one used up
	open     []*Slot
	flat     []*Slot   // ended without use since the last batch
	retries  [][]*Slot // [stratum] groups that were given up: their tasks are sampled once more, first
	begun    bool      // rounds: the step's first round was admitted
	lost     []int     // rounds: groups of each stratum that Restore gave up or found missing, for which others are still to be admitted
	refills  int       // rounds after the first; without rounds: groups admitted in place of flat ones
}

// Limits are what a run's settings come to.
type Limits struct {
	Groups    int  // of a batch
	Strata    int  // of the data; a batch takes Groups/Strata of each
	Capacity  int  // most groups outstanding, those in training included; a multiple of Strata
	Staleness int  // most versions between a group's lowest token and the version that trains it
	Updates   int  // most versions that a step adds, at least 1
	Drop      bool // give up what cannot be trained in time, in place of waiting for it
	Numbered  bool // a group's place is its running number, so that its seeds do not depend on timing
	Refills   int  // dynamic sampling: rounds of further groups in a step
	Steps     int  // of the run; no group is admitted that no step would train. 0: no end
}

// rounds tells whether every step waits for all that it admitted.
func (l Limits) rounds() bool { return l.Capacity == l.Groups }

func (l Limits) Each() int { return l.Groups / l.Strata }

// LimitsOf reads a job's settings. The data has so many strata.
func LimitsOf(j *job.Job, a *algorithms.Algorithm, strata int) Limits {
	r := j.Rollout
	l := Limits{Groups: r.Groups, Strata: strata, Capacity: r.Groups, Staleness: r.MaxStaleness, Updates: a.Updates(), Drop: r.Stale == "drop", Refills: r.MaxRefills}
	each := r.Groups / strata
	steps := 1 + r.MaxStaleness/l.Updates
	switch {
	case r.Mode == "async":
		l.Capacity, l.Numbered, l.Steps = steps*r.Groups, true, j.Trainer.Steps
	case r.Oversample > 1:
		l.Capacity = strata * min(steps*each, ceil(r.Oversample*float64(each)))
	}
	return l
}

func ceil(x float64) int { return int(math.Ceil(x - 1e-9)) } // 1.1 * 10 is 11

// Slot is a group as the pipeline sees it.
type Slot struct {
	n           int // running number over the run
	stratum     int
	Step, Group int   // its place
	version     int32 // no token of it is of a lower one
	retryOf     *Slot // the group that was given up, whose task it samples once more; nil: the next task of the stratum
	complete    bool
	useful      bool
	ended       *Slot // of a restored group whose failed trajectories are tried again: as it ended with them; nil: it may not be left so
}

// chosen is a batch.
type chosen struct {
	step    int
	version int32   // that trains it
	groups  []*Slot // to train, by running number
	flat    []*Slot // ended since the last batch, of no use to an update
	dropped []*Slot // to be cancelled: they could not be trained in time. Their tasks are sampled once more
	left    []*Slot // that go on being sampled
	refills int
}

func newPipeline(l Limits, step int, version int32, next int) *pipeline {
	return &pipeline{limits: l, step: step, version: version, next: next, retries: make([][]*Slot, l.Strata)}
}

// Restore takes over the groups that a run had outstanding when it stopped, in the order of their numbers. It returns
// those that the present settings allow no step to train, whose tasks are sampled once more. What failed is tried again,
// unless that would cost a group that was sampled since.
func (p *pipeline) Restore(slots []*Slot) (dropped []*Slot) {
	if p.limits.rounds() {
		p.restoreRounds(slots)
	}
	isFlat := func(s *Slot) bool { return s.complete && !s.useful }
	p.open = slices.DeleteFunc(slices.Clone(slots), isFlat)
	for k := range p.limits.Strata {
		p.leaveEnded(k)
	}
	p.open = slices.DeleteFunc(p.open, isFlat)
	for _, s := range slots {
		if isFlat(s) {
			p.flat = append(p.flat, s)
		}
	}
	if !p.limits.rounds() {
		p.refills = len(p.flat)
	}
	for k := range p.limits.Strata {
		dropped = append(dropped, p.overdue(of(k, p.open), p.version)...)
	}
	p.giveUp(dropped)
	if p.limits.rounds() {
		p.replace(slots, dropped)
	}
	return dropped
}

// nextBatch lists the groups that the next batch would be counted with if all restored groups stayed as they ended: those that are flat, and of
// each stratum the complete ones that must be trained soonest, or what still runs where they are too few.
func (p *pipeline) nextBatch(slots []*Slot) (out []*Slot) {
	as := func(s *Slot) *Slot { return cmp.Or(s.ended, s) }
	for k := range p.limits.Strata {
		var complete, running []*Slot
		for _, s := range of(k, slots) {
			switch {
			case !as(s).complete:
				running = append(running, s)
			case as(s).useful:
				complete = append(complete, s)
			default:
				out = append(out, s)
			}
		}
		slices.SortStableFunc(complete, func(a, b *Slot) int { return cmp.Compare(as(a).version, as(b).version) })
		rest := append(complete, running...)
		out = append(out, rest[:min(p.limits.Each(), len(rest))]...)
	}
	return out
}

// leaveEnded leaves restored groups of a stratum as they ended, failures included, where there is no room for them and for
// those that were admitted since: first flat ones, which then take no place, and then others, whose slack is that of the
// tokens that they have.
func (p *pipeline) leaveEnded(stratum int) {
	open := of(stratum, p.open)
	for _, useful := range []bool{false, true} {
		for i := 0; i < len(open); i++ {
			s := open[i]
			if s.ended == nil || s.ended.useful != useful {
				continue
			}
			others := slices.Delete(slices.Clone(open), i, i+1)
			if useful {
				others = slices.Insert(others, i, s.ended)
			}
			full := !useful && len(open) > p.places()
			if full || len(p.overdue(others, p.version)) < len(p.overdue(open, p.version)) {
				*s = *s.ended
				if open = others; !useful {
					i--
				}
			}
		}
	}
}

// replace makes room in the round that goes on for as many groups as it lost and the step lacks, and for those that are missing of
// the step's first round, because it began with fewer. Only groups of mode async are lost, which knows no rounds: none of them was a
// refill.
func (p *pipeline) replace(slots, dropped []*Slot) {
	if len(slots) == 0 {
		return
	}
	if len(dropped) > 0 {
		p.refills = 0
	}
	lost, each := make([]int, p.limits.Strata), p.limits.Each()
	for k := range lost {
		missing := max(0, each-len(of(k, slots)))
		lost[k] = max(0, min(len(of(k, dropped))+missing, each-len(of(k, p.open))))
	}
	if slices.Max(lost) > 0 {
		p.lost = lost
	}
}

// restoreRounds finds out which round of the step the groups are from: what a round admits follows from what the rounds
// before it gave. Those are over: their groups stay as they ended, failures included.
func (p *pipeline) restoreRounds(slots []*Slot) {
	p.begun = len(slots) > 0
	for at := p.limits.Groups; at < len(slots); p.refills++ {
		useful := 0
		for _, s := range slots[:at] {
			if s.ended != nil {
				*s = *s.ended
			}
			if s.complete && s.useful {
				useful++
			}
		}
		at += max(1, p.limits.Groups-useful)
	}
}

// of lists those of a stratum.
func of(stratum int, all []*Slot) (out []*Slot) {
	for _, s := range all {
		if s.stratum == stratum {
			out = append(out, s)
		}
	}
	return out
}

// of lists the open groups of a stratum that pass.
func (p *pipeline) of(stratum int, pass func(*Slot) bool) []*Slot {
	return slices.DeleteFunc(of(stratum, p.open), func(s *Slot) bool { return !pass(s) })
}

func isComplete(s *Slot) bool { return s.complete }
func isRunning(s *Slot) bool  { return !s.complete }

// Idle tells whether nothing is being sampled.
func (p *pipeline) Idle() bool { return !slices.ContainsFunc(p.open, isRunning) }

// Admit returns the groups to begin with now.
func (p *pipeline) Admit() (out []*Slot) {
	room := p.room()
	for k, n := range room {
		for range n {
			out = append(out, p.admit(k))
		}
	}
	return out
}

func (p *pipeline) admit(stratum int) *Slot {
	p.inStep = max(p.inStep, p.taken[p.step])
	s := &Slot{n: p.next, stratum: stratum, Step: p.step, Group: p.inStep, version: p.version}
	if p.limits.Numbered {
		s.Step, s.Group = s.n/p.limits.Groups, s.n%p.limits.Groups
	}
	if q := p.retries[stratum]; len(q) > 0 {
		s.retryOf, p.retries[stratum] = q[0], q[1:]
	}
	p.next++
	p.inStep++
	p.open = append(p.open, s)
	return s
}

// room is how many groups of each stratum may begin.
func (p *pipeline) room() []int {
	out := make([]int, p.limits.Strata)
	if p.limits.rounds() {
		p.nextRound(out)
		return out
	}
	for k := range out {
		out[k] = p.roomOf(k)
	}
	return out
}

// nextRound is the room of a step that waits for all that it admitted.
func (p *pipeline) nextRound(out []int) {
	if p.lost != nil {
		copy(out, p.lost)
		p.lost = nil
		return
	}
	if p.training || !p.Idle() || p.begun && p.enough() {
		return
	}
	for k := range out {
		out[k] = p.limits.Each() - len(p.of(k, isComplete))
	}
	if p.begun {
		p.refills++
	}
	p.begun = true
}

// enough tells whether a step's rounds are over.
func (p *pipeline) enough() bool {
	return len(p.open) >= p.limits.Groups || p.refills >= p.limits.Refills // a run may go on with fewer than it had
}

// roomOf is the room of a stratum without rounds. Flat groups are replaced at once, until there were as many as
// max_refills rounds would have replaced; beyond that each keeps its place until the next batch.
func (p *pipeline) roomOf(stratum int) int {
	flat := len(of(stratum, p.flat))
	return max(0, p.places()-len(of(stratum, p.open))-max(0, flat-p.limits.Refills*p.limits.Each()))
}

// places is how many groups of a stratum may be open.
func (p *pipeline) places() int {
	each := p.limits.Each()
	n := p.limits.Capacity / p.limits.Strata
	if p.training {
		n -= each
	}
	if p.limits.Steps > 0 {
		n = min(n, (p.limits.Steps-p.step)*each)
	}
	return n
}

// Complete says that all trajectories of a group have ended. lowest is the lowest version of the tokens that would be
// trained, -1 without any; useful says whether an update can learn from them.
func (p *pipeline) Complete(n int, lowest int32, useful bool) error {
	at := slices.IndexFunc(p.open, func(s *Slot) bool { return s.n == n })
	if at < 0 || p.open[at].complete {
		return fmt.Errorf("orchestrator: group %d ended, but it is not outstanding", n)
	}
	s := p.open[at]
	switch {
	case lowest < 0:
		s.version = p.version
	case lowest < s.version:
		return fmt.Errorf("orchestrator: group %d was admitted at policy version %d, but the engine says that version %d sampled a token of it", n, s.version, lowest)
	default:
		s.version = lowest
	}
	s.complete, s.useful, s.ended = true, useful, nil
	if !useful {
		p.open = slices.Delete(p.open, at, at+1)
		p.flat = append(p.flat, s)
		if !p.limits.rounds() {
			p.refills++
		}
	}
	return nil
}

// Batch returns what the next step trains, once that can be said.
func (p *pipeline) Batch() (b chosen, ok bool) {
	if p.training || p.limits.rounds() && !(p.begun && p.lost == nil && p.Idle() && p.enough()) {
		return b, false
	}
	b = chosen{step: p.step, version: p.version, flat: p.flat, refills: p.refills}
	for k := range p.limits.Strata {
		groups, dropped, ok := p.batchOf(k)
		if !ok {
			return chosen{}, false
		}
		b.groups, b.dropped = append(b.groups, groups...), append(b.dropped, dropped...)
	}
	byNumber := func(a, b *Slot) int { return cmp.Compare(a.n, b.n) }
	slices.SortFunc(b.groups, byNumber)
	slices.SortFunc(b.flat, byNumber)
	p.open = slices.DeleteFunc(p.open, func(s *Slot) bool { return slices.Contains(b.groups, s) })
	p.giveUp(b.dropped)
	b.left = slices.Clone(p.open)
	p.training, p.handed, p.flat, p.refills, p.inStep, p.begun = true, len(b.groups), nil, 0, 0, false
	p.step++
	return b, true
}

// batchOf is a stratum's share of the batch: the complete groups that must be trained soonest. Without rounds fewer than
// its share are taken only when no more can come.
func (p *pipeline) batchOf(stratum int) (groups, dropped []*Slot, ok bool) {
	groups = p.of(stratum, isComplete)
	slices.SortStableFunc(groups, func(a, b *Slot) int { return cmp.Compare(a.version, b.version) })
	each := p.limits.Each()
	if len(groups) < each && (len(p.of(stratum, isRunning)) > 0 || !p.limits.rounds() && p.roomOf(stratum) > 0) {
		return nil, nil, false
	}
	groups = groups[:min(each, len(groups))]
	left := p.of(stratum, func(s *Slot) bool { return !slices.Contains(groups, s) })
	dropped = p.overdue(left, p.version+int32(p.limits.Updates))
	return groups, dropped, len(dropped) == 0 || p.limits.Drop
}

// overdue lists the groups of a stratum that no step could train within the bound, if the next one trained at version
// next: those without slack, and those too many for the steps that they could wait for. After a batch only groups that
// still run are among them, because the batch prefers what has the least slack.
func (p *pipeline) overdue(groups []*Slot, next int32) (out []*Slot) {
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b *Slot) int { return cmp.Compare(p.slack(a, next), p.slack(b, next)) })
	kept := 0
	for _, s := range groups {
		if slack := p.slack(s, next); slack < 0 || kept >= (slack+1)*p.limits.Each() {
			out = append(out, s)
			continue
		}
		kept++
	}
	return out
}

// slack is the number of steps that a group can wait for if the next one trains at version next; negative: none.
func (p *pipeline) slack(s *Slot, next int32) int {
	d := int(s.version) + p.limits.Staleness - int(next)
	if d < 0 {
		return -1
	}
	return d / p.limits.Updates
}

func (p *pipeline) giveUp(slots []*Slot) {
	for _, s := range slots {
		p.retries[s.stratum] = append(p.retries[s.stratum], s)
	}
	p.open = slices.DeleteFunc(p.open, func(s *Slot) bool { return slices.Contains(slots, s) })
}

// Trained says that the update is done and which version samples from now on.
func (p *pipeline) Trained(version int32) { p.training, p.handed, p.version = false, 0, version }

// Groups are those that a run has outstanding: sampled, or not yet through the update that trains them. See docs/async.md.
type Groups struct {
	Sampling  int `json:"sampling"`  // have trajectories that go on
	Ended     int `json:"ended"`     // wait for their update
	Training  int `json:"training"`  // are in the update
	Batch     int `json:"batch"`     // of an update
	Most      int `json:"most"`      // outstanding at once
	Behind    int `json:"behind"`    // policy versions between the oldest that samples or waits and the newest
	Staleness int `json:"staleness"` // most versions that a group may be behind when it is trained
}

// Groups counts what is outstanding. Flat groups, which no update trains, are not.
func (p *pipeline) Groups() Groups {
	out := Groups{Training: p.handed, Batch: p.limits.Groups, Most: p.limits.Capacity, Staleness: p.limits.Staleness}
	for _, s := range p.open {
		if s.complete {
			out.Ended++
		} else {
			out.Sampling++
		}
		out.Behind = max(out.Behind, int(p.version-s.version))
	}
	return out
}
