package schedule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// Recovered is what a run that goes on has of its outstanding groups.
type Recovered struct {
	Dir   string                            // of the run, for errors
	Log   *store.Recovery                   // the groups that go on, and which places are taken; nil: none
	Ended map[string]*trajectory.Trajectory // of these groups, by id
	Tasks map[string]trajectory.Task        // of the data: what a store gives back may be written differently
}

// Restore takes over the outstanding groups of the log: what has ended is there, and the rest goes on with the first groups
// that begin. over are the ids of trajectories without an end, or that failed, which do not go on: their groups stay as they ended, or are given up.
func (f *Feed) Restore(from Recovered) (over []string, err error) {
	log := from.Log
	for k := range f.dealt {
		if k < len(log.Dealt) {
			f.dealt[k] = max(f.dealt[k], log.Dealt[k])
		}
	}
	groups := log.Training()
	p := f.plan
	p.taken, p.next = log.Taken, len(groups)
	if p.limits.Numbered {
		p.next = p.step * p.limits.Groups
		for step, n := range log.Taken {
			p.next = max(p.next, step*p.limits.Groups+n)
		}
		p.next = max(p.next, len(groups)) // batches that were larger may have left more
	}
	var slots []*Slot
	for i, o := range groups {
		if o.Stratum >= p.limits.Strata {
			return nil, job.InputError(fmt.Errorf("data.balance: the run in %s has outstanding tasks of %d strata, the data has %d; continue with the settings that it began with", from.Dir, o.Stratum+1, p.limits.Strata))
		}
		s := &Slot{n: p.next - len(groups) + i, stratum: o.Stratum, Step: o.Step, Group: o.Group, version: o.Version}
		g := newGroup(s, o.Size)
		g.Task, g.at = o.Task, o.Position
		if task, ok := from.Tasks[o.Task.ID]; ok {
			g.Task = task
		}
		f.reopen(g, o, from)
		f.inFlight[s.n] = g
		slots = append(slots, s)
	}
	if !p.limits.rounds() {
		f.mayStay(slots)
	}
	p.Restore(slots)
	for _, g := range f.inFlight {
		if g.complete { // what failed may have been left so
			clear(g.Running)
		}
		if slices.Contains(p.open, g.Slot) && !g.complete {
			f.waiting = append(f.waiting, g)
		}
	}
	slices.SortFunc(f.waiting, func(a, b *Group) int { return cmp.Compare(a.n, b.n) })
	return f.over(from), nil
}

// over are the ids of trajectories without an end whose groups do not wait to go on.
func (f *Feed) over(from Recovered) (ids []string) {
	for _, o := range from.Log.Outstanding {
		if slices.ContainsFunc(f.waiting, func(g *Group) bool { return g.Step == o.Step && g.Slot.Group == o.Group }) {
			continue
		}
		for i := range o.Size {
			if id := store.ID(o.Phase, o.Step, o.Group, i); from.Ended[id] == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// reopen finds out whether a restored group is complete, or how it ended with trajectories that are tried again. What
// had no end when a batch was taken since its admission was cut by it.
func (f *Feed) reopen(g *Group, o *store.Outstanding, from Recovered) {
	group := trajectory.Group{Task: g.Task, Trajectories: slices.Clone(o.Finished)}
	for i, tr := range o.Finished {
		again := tr == nil || from.Ended[tr.ID] == nil
		g.Running[i], g.cut[i] = again, o.Left && (tr == nil || o.Cut[tr.ID])
	}
	if f.trees { // the place of a leaf is known when all have ended
		for _, marks := range [][]bool{g.Running, g.cut} {
			copy(marks, slices.Repeat([]bool{slices.Contains(marks, true)}, len(marks)))
		}
	}
	again := slices.Contains(g.Running, true)
	if f.greedy {
		group.Greedy = from.greedy(o)
		again = again || group.Greedy == nil || from.Ended[group.Greedy.ID] == nil
	}
	if slices.Contains(group.Trajectories, nil) || f.greedy && group.Greedy == nil {
		return
	}
	tree.Sort(group.Trajectories)
	ended := *g.Slot
	if lowest := group.LowestVersion(f.frozen); lowest >= 0 {
		ended.version = lowest
	}
	ended.complete, ended.useful = true, f.work.Usable(group)
	g.group = group
	if !again {
		*g.Slot = ended
		return
	}
	if !f.plan.limits.rounds() || !o.Latest { // of rounds: the next one began when this one had ended, so that few enough had failed
		g.ended = &ended
	}
}

// mayStay finds out which restored groups may stay as they ended, failures included: those whose own failures are few enough for a step, and those of
// the next batch as long as its failures are. A run that ended because too much failed would end again with others.
func (f *Feed) mayStay(slots []*Slot) {
	var batch []trajectory.Group
	fewFailed := func(groups ...trajectory.Group) bool { return f.work.TooManyFailed(f.plan.step, groups) == nil }
	next := f.plan.nextBatch(slots)
	for _, s := range next {
		if s.ended == nil {
			batch = append(batch, f.soFar(s))
		}
	}
	for _, s := range slots {
		if s.ended == nil {
			continue
		}
		group, counted := f.inFlight[s.n].group, slices.Contains(next, s)
		switch with := append(slices.Clip(batch), group); {
		case counted && (fewFailed(with...) || fewFailed(group)):
			batch = with
		case !fewFailed(group):
			s.ended = nil
		}
	}
}

// soFar is a group as it is: what has no end yet has not failed.
func (f *Feed) soFar(s *Slot) trajectory.Group {
	g := f.inFlight[s.n]
	if s.complete {
		return g.group
	}
	var group trajectory.Group
	for range g.Running {
		group.Trajectories = append(group.Trajectories, &trajectory.Trajectory{})
	}
	return group
}

// greedy is the greedy rollout beside a group, with its end; nil: it has none.
func (r Recovered) greedy(o *store.Outstanding) *trajectory.Trajectory {
	for i := range r.Log.Outstanding {
		if g := &r.Log.Outstanding[i]; g.Phase == store.Greedy && g.Step == o.Step && g.Group == o.Group {
			return g.Finished[0]
		}
	}
	return nil
}
