package schedule

import (
	"context"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Feed does what the pipeline says: it samples groups and hands batches out. A group is a goroutine, which also admits the
// next groups when it ends; Close joins them all.
type Feed struct {
	work    Work
	size    int                        // of a group
	greedy  bool                       // a group has a greedy rollout beside it
	trees   bool                       // see Options
	frozen  func(trajectory.Role) bool // see Options
	changed chan struct{}              // buffered: something happened that sample waits for
	joined  sync.WaitGroup

	admitting sync.Mutex // held while groups are taken in

	mu       sync.Mutex
	plan     *pipeline
	inFlight map[int]*Group // outstanding and flat groups, by running number
	dealt    []int          // tasks that each stratum of the data has dealt
	err      error          // the first that ends the run
	closed   bool

	waiting []*Group // restored groups that go on when the next begin
	lost    []int    // sampled tokens of each trajectory that was given up since the last batch
}

// Work is what a feed asks of the run that it feeds. All methods but Task and Observe may be called at once.
type Work interface {
	// Task is what a stratum of the data deals at a position; Observe tells the dealing how the groups of a batch ended, when the strata
	// were at the positions dealt. The feed's lock is held.
	Task(stratum, position int) trajectory.Task
	Observe(groups []trajectory.Group, dealt []int)
	// Admit makes admissions durable.
	Admit(ctx context.Context, all ...store.Admission) error
	// Sample samples and stores a group, with its greedy rollout where there is one. ended is called as each trajectory ends.
	Sample(ctx context.Context, g *Group, ended func(index int)) (trajectory.Group, error)
	// Usable tells whether an update can learn from a group.
	Usable(g trajectory.Group) bool
	// TooManyFailed is the error that ends the run because of what failed in the groups of a step.
	TooManyFailed(step int, groups []trajectory.Group) error
}

// Options say where a feed begins.
type Options struct {
	Limits  Limits
	Step    int                        // of the next batch
	Version int32                      // that samples
	Size    int                        // trajectories of a group
	Greedy  bool                       // a group has a greedy rollout beside it
	Trees   bool                       // the trajectories of a group branch, so that none has ended before all have
	Dealt   []int                      // tasks that each stratum of the data has dealt
	Frozen  func(trajectory.Role) bool // what the policy samples in that role is not trained, and so never too stale; nil: all is trained
}

// Group is a group that is being sampled or waits for its batch.
type Group struct {
	*Slot
	Task    trajectory.Task
	at      int                     // position of the task in its stratum
	retryOf *store.GroupRef         // the group that was given up and had the same task; nil: none
	group   trajectory.Group        // once complete
	cancel  context.CancelCauseFunc // with rollout.ErrGivenUp where the run goes on
	dropped bool                    // given up, maybe before its sampling began
	Running []bool                  // [group_size] has not ended
	cut     []bool                  // [group_size] had not ended when some batch was chosen
}

func NewFeed(w Work, o Options) *Feed {
	return &Feed{
		work: w, size: o.Size, greedy: o.Greedy, trees: o.Trees, frozen: o.Frozen, changed: make(chan struct{}, 1), plan: newPipeline(o.Limits, o.Step, o.Version, 0), inFlight: map[int]*Group{}, dealt: o.Dealt,
	}
}

// notify wakes sample.
func (f *Feed) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Trained says that the batch handed out last is trained, so that further groups can begin before the next is asked for. More: the run has
// a further step; else nothing begins.
func (f *Feed) Trained(ctx context.Context, version int32, more bool) {
	f.mu.Lock()
	if !more {
		f.plan.handed = 0
		f.mu.Unlock()
		return
	}
	f.plan.Trained(version)
	overlaps := !f.plan.limits.rounds()
	f.mu.Unlock()
	if overlaps {
		f.pump(ctx)
	}
}

// pump begins the groups that there is room for.
func (f *Feed) pump(ctx context.Context) {
	if begun := f.admit(ctx); len(begun) > 0 {
		f.begin(ctx, begun)
	}
}

// admit returns the groups to begin with, whose admission is durable before anything of them is sampled. One caller comes
// after the other: a group that takes the task of one that was given up finds that one's admission in the log.
func (f *Feed) admit(ctx context.Context) []*Group {
	f.admitting.Lock()
	defer f.admitting.Unlock()
	f.mu.Lock()
	if f.closed || f.err != nil || ctx.Err() != nil {
		f.mu.Unlock()
		return nil
	}
	begun := f.waiting
	f.waiting = nil
	var admissions []store.Admission
	for _, s := range f.plan.Admit() {
		g := f.open(s)
		begun = append(begun, g)
		admissions = append(admissions, f.admissions(g)...)
	}
	f.joined.Add(len(begun))
	f.mu.Unlock()
	if len(admissions) > 0 {
		if err := f.work.Admit(ctx, admissions...); err != nil {
			f.fail(ctx, err)
			f.joined.Add(-len(begun))
			return nil
		}
	}
	return begun
}

// begin samples groups whose admission is durable. Meanwhile an update may have ended, and a batch given some up.
func (f *Feed) begin(ctx context.Context, begun []*Group) {
	for _, g := range begun {
		one, cancel := context.WithCancelCause(ctx)
		f.mu.Lock()
		switch g.cancel = cancel; {
		case g.dropped:
			cancel(rollout.ErrGivenUp)
		case f.closed:
			cancel(nil)
		}
		f.mu.Unlock()
		go func() {
			defer f.joined.Done()
			defer cancel(nil)
			f.sample(ctx, one, g)
		}()
	}
}

// fail ends the run, unless it is ending already.
func (f *Feed) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.notify()
}

// open finds the task of a new group. The lock is held.
func (f *Feed) open(s *Slot) *Group {
	g := newGroup(s, f.size)
	if s.retryOf != nil {
		old := f.inFlight[s.retryOf.n]
		g.Task, g.at, g.retryOf = old.Task, old.at, &store.GroupRef{Step: old.Step, Group: old.Slot.Group}
		delete(f.inFlight, old.n)
	} else {
		g.at = f.dealt[s.stratum]
		g.Task = f.work.Task(s.stratum, g.at)
		f.dealt[s.stratum]++
	}
	f.inFlight[s.n] = g
	return g
}

func newGroup(s *Slot, size int) *Group {
	return &Group{Slot: s, Running: slices.Repeat([]bool{true}, size), cut: make([]bool, size), cancel: func(error) {}}
}

// admissions of a group and its greedy rollout.
func (f *Feed) admissions(g *Group) []store.Admission {
	a := store.Admission{
		Phase: store.Train, Step: g.Step, Group: g.Slot.Group, Task: g.Task, Size: len(g.Running), Version: g.version,
		Stratum: g.stratum, Position: g.at, RetryOf: g.retryOf,
	}
	if !f.greedy {
		return []store.Admission{a}
	}
	greedy := a
	greedy.Phase, greedy.Size, greedy.RetryOf = store.Greedy, 1, nil
	return []store.Admission{a, greedy}
}

// sample samples a group to its end. ctx is the run's, one the group's own.
func (f *Feed) sample(ctx, one context.Context, g *Group) {
	group, err := f.work.Sample(one, g, func(index int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		g.Running[index] = false
	})
	f.mu.Lock()
	defer f.notify()
	defer func() {
		overlaps := !f.plan.limits.rounds()
		f.mu.Unlock()
		if overlaps {
			f.pump(ctx)
		}
	}()
	switch {
	case one.Err() != nil: // given up, or the run ends
		for _, tr := range group.Trajectories {
			f.lost = append(f.lost, tr.ResponseTokens())
		}
		return
	case err == nil:
		g.group = group
		lowest := group.LowestVersion(f.frozen)
		err = f.plan.Complete(g.n, lowest, f.work.Usable(group))
	}
	if err != nil && f.err == nil {
		f.err = err
	}
}

// Batch waits for the batch of the next step. The one before it is trained, and version samples.
func (f *Feed) Batch(ctx context.Context, version int32) (*Batch, error) {
	f.mu.Lock()
	f.plan.Trained(version)
	f.mu.Unlock()
	for {
		if err := f.failed(); err != nil {
			return nil, err
		}
		f.pump(ctx)
		if b := f.take(); b != nil {
			return b, f.work.TooManyFailed(b.Step, b.All)
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// failed is the error that ends the run: one of a rollout's store, or too many failed trajectories in what a step has
// sampled so far, once none of it is running.
func (f *Feed) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || !f.plan.Idle() {
		return f.err
	}
	var ended []trajectory.Group
	for _, s := range slices.Concat(f.plan.open, f.plan.flat) {
		ended = append(ended, f.inFlight[s.n].group)
	}
	return f.work.TooManyFailed(f.plan.step, ended)
}

// take hands the next batch out, if there is one, and gives up what could not be trained in time.
func (f *Feed) take() *Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.plan.Batch()
	if !ok {
		return nil
	}
	b := &Batch{Step: c.step, Version: c.version, Refills: c.refills, Dropped: len(c.dropped), Dealt: slices.Clone(f.dealt), Lost: f.lost}
	f.lost = nil
	for _, s := range mergeByNumber(c.groups, c.flat) {
		g := f.inFlight[s.n]
		delete(f.inFlight, s.n)
		b.All = append(b.All, g.group)
		if slices.Contains(c.groups, s) {
			b.Trained, b.Cut = append(b.Trained, g.group), append(b.Cut, g.cut)
		}
	}
	for _, s := range c.dropped {
		g := f.inFlight[s.n]
		g.dropped = true
		g.cancel(rollout.ErrGivenUp)
	}
	for _, s := range c.left {
		g := f.inFlight[s.n]
		for i, running := range g.Running {
			if running {
				g.cut[i] = true
				b.Running++
			}
		}
	}
	f.work.Observe(b.All, b.Dealt) // before another task is dealt: what was dealt before and after it is in the log
	return b
}

func mergeByNumber(a, b []*Slot) []*Slot {
	out := slices.Concat(a, b)
	slices.SortFunc(out, func(a, b *Slot) int { return a.n - b.n })
	return out
}

// Groups counts what is outstanding.
func (f *Feed) Groups() Groups {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan.Groups()
}

// Close cancels what is being sampled and waits for its end.
func (f *Feed) Close() {
	f.mu.Lock()
	f.closed = true
	for _, g := range f.inFlight {
		g.cancel(nil)
	}
	f.mu.Unlock()
	f.joined.Wait()
}
