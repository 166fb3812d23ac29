package orchestrator

import (
	"context"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// feed does what the pipeline says: it samples groups and hands batches out. A group is a goroutine, which also admits the
// next groups when it ends; Close joins them all.
type feed struct {
	work    work
	size    int           // of a group
	greedy  bool          // a group has a greedy rollout beside it
	changed chan struct{} // buffered: something happened that sample waits for
	joined  sync.WaitGroup

	admitting sync.Mutex // held while groups are taken in

	mu     sync.Mutex
	plan   *pipeline
	live   map[int]*live // outstanding and flat groups, by running number
	dealt  []int         // tasks that each stratum of the data has dealt
	err    error         // the first that ends the run
	closed bool

	waiting []*live // restored groups that go on when the next begin
	lost    []int   // sampled tokens of each trajectory that was given up since the last batch
}

// work is what a feed asks of the run that it feeds. All methods but task and observe may be called at once.
type work interface {
	// task is what a stratum of the data deals at a position; observe tells the dealing how the groups of a batch ended, when the strata
	// were at the positions dealt. The feed's lock is held.
	task(stratum, position int) trajectory.Task
	observe(groups []trajectory.Group, dealt []int)
	// admit makes admissions durable.
	admit(ctx context.Context, all ...store.Admission) error
	// group samples and stores a group, with its greedy rollout where there is one. ended is called as each trajectory ends.
	group(ctx context.Context, l *live, ended func(index int)) (trajectory.Group, error)
	// usable tells whether an update can learn from a group.
	usable(g trajectory.Group) bool
	// tooManyFailed is the error that ends the run because of what failed in the groups of a step.
	tooManyFailed(step int, groups []trajectory.Group) error
}

// feedOptions say where a feed begins.
type feedOptions struct {
	limits  limits
	step    int   // of the next batch
	version int32 // that samples
	size    int   // trajectories of a group
	greedy  bool  // a group has a greedy rollout beside it
	dealt   []int // tasks that each stratum of the data has dealt
}

// live is a group that is being sampled or waits for its batch.
type live struct {
	*slot
	task    trajectory.Task
	at      int              // position of the task in its stratum
	again   *store.GroupRef  // the group that was given up and had the same task; nil: none
	group   trajectory.Group // once complete
	cancel  context.CancelFunc
	dropped bool   // given up, maybe before its sampling began
	running []bool // [group_size] has not ended
	cut     []bool // [group_size] had not ended when some batch was chosen
}

func newFeed(w work, o feedOptions) *feed {
	return &feed{
		work: w, size: o.size, greedy: o.greedy, changed: make(chan struct{}, 1), plan: newPipeline(o.limits, o.step, o.version, 0), live: map[int]*live{}, dealt: o.dealt,
	}
}

// notify wakes sample.
func (f *feed) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Trained says that the batch handed out last is trained, so that further groups can begin before the next is asked for.
func (f *feed) Trained(ctx context.Context, version int32) {
	f.mu.Lock()
	f.plan.Trained(version)
	overlaps := !f.plan.limits.rounds()
	f.mu.Unlock()
	if overlaps {
		f.pump(ctx)
	}
}

// pump begins the groups that there is room for.
func (f *feed) pump(ctx context.Context) {
	if begun := f.admit(ctx); len(begun) > 0 {
		f.begin(ctx, begun)
	}
}

// admit returns the groups to begin with, whose admission is durable before anything of them is sampled. One caller comes
// after the other: a group that takes the task of one that was given up finds that one's admission in the log.
func (f *feed) admit(ctx context.Context) []*live {
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
		l := f.open(s)
		begun = append(begun, l)
		admissions = append(admissions, f.admissions(l)...)
	}
	f.joined.Add(len(begun))
	f.mu.Unlock()
	if len(admissions) > 0 {
		if err := f.work.admit(ctx, admissions...); err != nil {
			f.fail(ctx, err)
			f.joined.Add(-len(begun))
			return nil
		}
	}
	return begun
}

// begin samples groups whose admission is durable. Meanwhile an update may have ended, and a batch given some up.
func (f *feed) begin(ctx context.Context, begun []*live) {
	for _, l := range begun {
		one, cancel := context.WithCancel(ctx)
		f.mu.Lock()
		if l.cancel = cancel; f.closed || l.dropped {
			cancel()
		}
		f.mu.Unlock()
		go func() {
			defer f.joined.Done()
			defer cancel()
			f.sample(ctx, one, l)
		}()
	}
}

// fail ends the run, unless it is ending already.
func (f *feed) fail(ctx context.Context, err error) {
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
func (f *feed) open(s *slot) *live {
	l := newLive(s, f.size)
	if old := f.live[s.again]; old != nil {
		l.task, l.at, l.again = old.task, old.at, &store.GroupRef{Step: old.step, Group: old.slot.group}
		delete(f.live, s.again)
	} else {
		l.at = f.dealt[s.stratum]
		l.task = f.work.task(s.stratum, l.at)
		f.dealt[s.stratum]++
	}
	f.live[s.n] = l
	return l
}

func newLive(s *slot, size int) *live {
	return &live{slot: s, running: slices.Repeat([]bool{true}, size), cut: make([]bool, size), cancel: func() {}}
}

// admissions of a group and its greedy rollout.
func (f *feed) admissions(l *live) []store.Admission {
	a := store.Admission{
		Phase: store.Train, Step: l.step, Group: l.slot.group, Task: l.task, Size: len(l.running), Version: l.version,
		Stratum: l.stratum, Position: l.at, Again: l.again,
	}
	if !f.greedy {
		return []store.Admission{a}
	}
	greedy := a
	greedy.Phase, greedy.Size, greedy.Again = store.Greedy, 1, nil
	return []store.Admission{a, greedy}
}

// sample samples a group to its end. ctx is the run's, one the group's own.
func (f *feed) sample(ctx, one context.Context, l *live) {
	group, err := f.work.group(one, l, func(index int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		l.running[index] = false
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
		l.group = group
		lowest := group.LowestVersion()
		err = f.plan.Complete(l.n, lowest, f.work.usable(group))
	}
	if err != nil && f.err == nil {
		f.err = err
	}
}

// Batch waits for the batch of the next step. The one before it is trained, and version samples.
func (f *feed) Batch(ctx context.Context, version int32) (*batch, error) {
	f.mu.Lock()
	f.plan.Trained(version)
	f.mu.Unlock()
	for {
		if err := f.failed(); err != nil {
			return nil, err
		}
		f.pump(ctx)
		if b := f.take(); b != nil {
			return b, f.work.tooManyFailed(b.step, b.all)
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
func (f *feed) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || !f.plan.Idle() {
		return f.err
	}
	var ended []trajectory.Group
	for _, s := range slices.Concat(f.plan.open, f.plan.flat) {
		ended = append(ended, f.live[s.n].group)
	}
	return f.work.tooManyFailed(f.plan.step, ended)
}

// take hands the next batch out, if there is one, and gives up what could not be trained in time.
func (f *feed) take() *batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.plan.Batch()
	if !ok {
		return nil
	}
	b := &batch{step: c.step, version: c.version, refills: c.refills, dropped: len(c.dropped), dealt: slices.Clone(f.dealt), lost: f.lost}
	f.lost = nil
	for _, s := range mergeByNumber(c.groups, c.flat) {
		l := f.live[s.n]
		delete(f.live, s.n)
		b.all = append(b.all, l.group)
		if slices.Contains(c.groups, s) {
			b.trained, b.cut = append(b.trained, l.group), append(b.cut, l.cut)
		}
	}
	for _, s := range c.dropped {
		l := f.live[s.n]
		l.dropped = true
		l.cancel()
	}
	for _, s := range c.left {
		l := f.live[s.n]
		for i, running := range l.running {
			if running {
				l.cut[i] = true
				b.running++
			}
		}
	}
	f.work.observe(b.all, b.dealt) // before another task is dealt: what was dealt before and after it is in the log
	return b
}

func mergeByNumber(a, b []*slot) []*slot {
	out := slices.Concat(a, b)
	slices.SortFunc(out, func(a, b *slot) int { return a.n - b.n })
	return out
}

// Close cancels what is being sampled and waits for its end.
func (f *feed) Close() {
	f.mu.Lock()
	f.closed = true
	for _, l := range f.live {
		l.cancel()
	}
	f.mu.Unlock()
	f.joined.Wait()
}

// Dealt are the tasks that each stratum of the data has dealt.
func (f *feed) Dealt() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.dealt)
}

// Idle tells whether no group is being sampled.
func (f *feed) Idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan.Idle()
}
