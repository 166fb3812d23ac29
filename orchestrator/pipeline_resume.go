package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// recover reads what the log holds beyond the state that the run continues from: batches to train once more, without
// sampling, and then groups to go on with. A store without a log is cut back to the state.
func (t *run) recover(ctx context.Context) error {
	found, err := t.db.Recover(ctx, t.state.Step)
	if err != nil {
		return err
	}
	if found.Events == 0 {
		return t.db.Truncate(ctx, t.state.Step)
	}
	t.recovery = found
	return nil
}

// recorded is the next batch that the log holds; nil: there is none. Its groups are as they were when it was chosen.
func (t *run) recorded(ctx context.Context) (*batch, error) {
	if t.recovery == nil || len(t.recovery.Batches) == 0 {
		return nil, nil
	}
	r := t.recovery.Batches[0]
	t.recovery.Batches = t.recovery.Batches[1:]
	if r.Version != t.state.Version {
		return nil, fmt.Errorf("orchestrator: step %d: its batch was recorded for policy version %d, but the weights have version %d; the checkpoint and the store are not of the same run", r.Step, r.Version, t.state.Version)
	}
	b := &batch{step: r.Step, version: r.Version, dealt: r.Dealt, refills: r.Refills, seconds: r.Seconds, recorded: true}
	greedy := ""
	if t.algorithm.NeedsGreedy() {
		greedy = greedyPhase
	}
	refs := slices.Concat(r.Groups, r.Others)
	slices.SortFunc(refs, func(a, b store.GroupRef) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Group, b.Group))
	})
	groups, err := t.db.Groups(ctx, refs, greedy)
	if err != nil {
		return nil, err
	}
	for i, ref := range refs {
		b.all = append(b.all, groups[i])
		if slices.Contains(r.Groups, ref) {
			b.trained = append(b.trained, groups[i])
		}
	}
	return b, nil
}

// restore takes over the outstanding groups of the log.
func (f *feed) restore(r *store.Recovery) error {
	for k := range f.dealt {
		if k < len(r.Dealt) {
			f.dealt[k] = max(f.dealt[k], r.Dealt[k])
		}
	}
	var groups []*store.Outstanding
	for i := range r.Outstanding {
		if o := &r.Outstanding[i]; o.Phase == store.Train {
			groups = append(groups, o)
		}
	}
	slices.SortFunc(groups, func(a, b *store.Outstanding) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Group, b.Group))
	})
	f.plan.taken, f.plan.next = r.Taken, len(groups)
	if f.plan.limits.Numbered {
		f.plan.next = f.plan.step * f.plan.limits.Groups
		for step, n := range r.Taken {
			f.plan.next = max(f.plan.next, step*f.plan.limits.Groups+n)
		}
	}
	var slots []*slot
	for i, o := range groups {
		if o.Stratum >= f.plan.limits.Strata {
			return inputError(fmt.Errorf("data.balance: the run in %s has outstanding tasks of %d strata, the data has %d; continue with the settings that it began with", f.t.dir, o.Stratum+1, f.plan.limits.Strata))
		}
		s := &slot{n: f.plan.next - len(groups) + i, stratum: o.Stratum, step: o.Step, group: o.Group, version: o.Version, again: -1}
		l := newLive(s, o.Size)
		l.task, l.at, l.past = o.Task, o.Position, o
		if f.t.algorithm.NeedsGreedy() {
			l.greedy = greedyOf(r, o)
		}
		f.live[s.n] = l
		slots = append(slots, s)
		f.reopen(l)
	}
	f.plan.Restore(slots)
	for _, l := range f.live {
		if !l.complete && slices.Contains(f.plan.open, l.slot) {
			f.waiting = append(f.waiting, l)
		}
	}
	slices.SortFunc(f.waiting, func(a, b *live) int { return cmp.Compare(a.n, b.n) })
	return nil
}

func greedyOf(r *store.Recovery, o *store.Outstanding) *store.Outstanding {
	for i := range r.Outstanding {
		if g := &r.Outstanding[i]; g.Phase == greedyPhase && g.Step == o.Step && g.Group == o.Group {
			return g
		}
	}
	return nil
}

// reopen finds out whether a restored group is complete.
func (f *feed) reopen(l *live) {
	for i, tr := range l.past.Finished {
		l.running[i] = tr == nil
		l.cut[i] = tr == nil && l.past.Step < f.plan.step
	}
	if slices.Contains(l.running, true) || f.t.algorithm.NeedsGreedy() && (l.greedy == nil || l.greedy.Finished[0] == nil) {
		return
	}
	l.group = trajectory.Group{Task: l.task, Trajectories: l.past.Finished}
	if l.greedy != nil {
		l.group.Greedy = l.greedy.Finished[0]
	}
	if lowest := lowestVersion(l.group); lowest >= 0 {
		l.version = lowest
	}
	l.complete, l.useful = true, f.t.usable(l.group)
}

// before is what the log holds of a trajectory that this process goes on with.
type before struct {
	trajectory *trajectory.Trajectory
	ended      bool
}

// before lists what the log holds of the trajectories of a group, by id.
func (l *live) before(phase string) map[string]before {
	from := l.past
	if phase == greedyPhase {
		from = l.greedy
	}
	if from == nil {
		return nil
	}
	out := map[string]before{}
	for i := range from.Size {
		id := store.ID(phase, from.Step, from.Group, i)
		switch {
		case from.Finished[i] != nil:
			out[id] = before{from.Finished[i], true}
		case from.Partial[i] != nil:
			out[id] = before{from.Partial[i], false}
		}
	}
	return out
}
