package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// scriptedWork is a run that samples a token for each trajectory at once, and remembers what it was asked.
type scriptedWork struct {
	size    int
	version int32   // that samples
	tooMany error   // because of what failed
	most    float64 // part of the trajectories that may fail; 0: tooMany says it

	mu       sync.Mutex
	admitted []store.Admission
	sampled  []store.GroupRef // groups of which something was sampled
}

func (w *scriptedWork) Task(_, position int) trajectory.Task {
	return trajectory.Task{ID: "q" + strconv.Itoa(position)}
}

func (w *scriptedWork) Observe([]trajectory.Group, []int) {}

func (w *scriptedWork) Admit(_ context.Context, all ...store.Admission) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitted = append(w.admitted, all...)
	return nil
}

func (w *scriptedWork) Sample(ctx context.Context, l *Group, ended func(index int)) (trajectory.Group, error) {
	group := trajectory.Group{Task: l.Task}
	if ctx.Err() == nil {
		w.mu.Lock()
		w.sampled = append(w.sampled, store.GroupRef{Step: l.Step, Group: l.Slot.Group})
		w.mu.Unlock()
	}
	for i := range w.size {
		tr := &trajectory.Trajectory{Step: l.Step, Group: l.Slot.Group, Index: i, StopReason: trajectory.StopCancelled}
		if ctx.Err() == nil {
			s := &trajectory.Sample{}
			s.AppendObservation([]int32{1})
			if err := s.AppendResponse([]int32{2}, []float32{-1}, []int32{w.version}); err != nil {
				return group, err
			}
			tr.Samples, tr.StopReason = []*trajectory.Sample{s}, trajectory.StopAnswer
		}
		group.Trajectories = append(group.Trajectories, tr)
		ended(i)
	}
	return group, nil
}

func (w *scriptedWork) Usable(g trajectory.Group) bool {
	return slices.ContainsFunc(g.Trajectories, func(tr *trajectory.Trajectory) bool { return tr.Err == "" })
}

func (w *scriptedWork) TooManyFailed(_ int, groups []trajectory.Group) error {
	if w.most == 0 {
		return w.tooMany
	}
	all, failed := 0, 0
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			all++
			if tr.Err != "" {
				failed++
			}
		}
	}
	if float64(failed) > w.most*float64(all) {
		return fmt.Errorf("%d of %d failed", failed, all)
	}
	return nil
}

// outstanding are the groups that the admissions leave: one that takes the task of another ends that one.
func (w *scriptedWork) outstanding(t *testing.T) map[store.GroupRef]bool {
	out := map[store.GroupRef]bool{}
	for _, a := range w.admitted {
		if a.RetryOf != nil {
			require.True(t, out[*a.RetryOf], "the group that was given up is admitted before the one that takes its task")
			delete(out, *a.RetryOf)
		}
		out[store.GroupRef{Step: a.Step, Group: a.Group}] = true
	}
	return out
}

// A group may be given up after its admission and before it begins: it is not sampled then, and its task comes again.
func TestAGroupThatIsGivenUpBeforeItBeginsIsNotSampled(t *testing.T) {
	w := &scriptedWork{size: 4, version: 7}
	f := NewFeed(w, Options{
		Limits: Limits{Groups: 3, Strata: 1, Capacity: 6, Staleness: 1, Updates: 1, Drop: true, Numbered: true, Steps: 30},
		Size:   4, Version: 7, Dealt: []int{0},
	})
	begun := f.admit(t.Context())
	require.Len(t, begun, 6)
	complete(t, f.plan, 7, 3, 4, 5)
	require.Len(t, f.take().Trained, 3)
	f.plan.Trained(8)
	w.version = 8
	require.Len(t, f.admit(t.Context()), 3)
	complete(t, f.plan, 8, 6, 7, 8)
	require.Equal(t, 3, f.take().Dropped, "groups 0, 1 and 2 would be two versions old")
	f.begin(t.Context(), begun[:3])
	f.joined.Add(-6) // those that end by the test's hand
	f.joined.Wait()
	require.NoError(t, f.err)

	given := map[store.GroupRef]string{{Group: 0}: "q0", {Group: 1}: "q1", {Group: 2}: "q2"}
	anew := map[store.GroupRef]string{}
	for _, g := range f.inFlight {
		if g.retryOf != nil {
			anew[*g.retryOf] = g.Task.ID
		}
	}
	require.Equal(t, given, anew, "their tasks come again")
	require.ElementsMatch(t, []store.GroupRef{{Step: 3, Group: 0}, {Step: 3, Group: 1}, {Step: 3, Group: 2}}, w.sampled, "and nothing of themselves was sampled")
	for ref := range w.outstanding(t) {
		require.NotContains(t, given, ref, "what took its task ended it in the log")
	}
}

// stuck samples until it is stopped, and keeps why.
type stuck struct {
	*scriptedWork
	causes map[int]error // by group
}

func (w stuck) Sample(ctx context.Context, l *Group, _ func(index int)) (trajectory.Group, error) {
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.causes[l.n] = context.Cause(ctx)
	return trajectory.Group{}, nil
}

// What samples a group is told whether the group is given up, before or while it is sampled, or the run ends.
func TestWhySamplingStops(t *testing.T) {
	w := stuck{&scriptedWork{size: 4, version: 7}, map[int]error{}}
	f := NewFeed(w, Options{
		Limits: Limits{Groups: 3, Strata: 1, Capacity: 6, Staleness: 1, Updates: 1, Drop: true, Numbered: true, Steps: 30},
		Size:   4, Version: 7, Dealt: []int{0},
	})
	ctx, end := context.WithCancel(t.Context())
	begun := f.admit(ctx)
	f.begin(ctx, begun[:2])
	complete(t, f.plan, 7, 3, 4, 5)
	require.Len(t, f.take().Trained, 3)
	f.plan.Trained(8)
	more := f.admit(ctx)
	complete(t, f.plan, 8, 6, 7, 8)
	require.Equal(t, 3, f.take().Dropped)
	f.begin(ctx, begun[2:3])
	f.joined.Add(-3 - len(more)) // those that end by the test's hand
	f.pump(ctx)
	end()
	f.joined.Wait()
	require.Greater(t, len(w.causes), 3)
	for n, cause := range w.causes {
		want := context.Canceled
		if n < 3 {
			want = rollout.ErrGivenUp
		}
		require.Equal(t, want, cause, n)
	}
}

// A group is as stale as its oldest token that is trained: those of frozen roles, which an older policy may have sampled, do not count.
func TestStalenessLeavesOutFrozenRoles(t *testing.T) {
	w := &scriptedWork{size: 2, version: 3}
	for name, frozen := range map[string]func(trajectory.Role) bool{"frozen": func(r trajectory.Role) bool { return r == "judge" }, "trained": nil} {
		t.Run(name, func(t *testing.T) {
			f := NewFeed(w, Options{
				Limits: Limits{Groups: 1, Strata: 1, Capacity: 1, Staleness: 1, Updates: 1, Drop: true, Numbered: true, Steps: 30},
				Size:   2, Version: 9, Dealt: []int{0}, Frozen: frozen,
			})
			g := f.admit(t.Context())[0]
			group, err := w.Sample(t.Context(), g, func(int) {})
			require.NoError(t, err)
			old, young := group.Trajectories[0], group.Trajectories[1]
			old.Turns = []trajectory.Turn{{CompletionStart: 1, CompletionEnd: 2, ObservationEnd: 2, Role: "judge"}}
			young.Samples[0].PolicyVersion[1] = 9
			old.ID, young.ID = "old", "young"
			f.reopen(g, &store.Outstanding{Finished: []*trajectory.Trajectory{old, young}, Partial: make([]*trajectory.Trajectory, 2)}, Recovered{Ended: map[string]*trajectory.Trajectory{"old": old, "young": young}})
			want := int32(9)
			if frozen == nil {
				want = 3
			}
			require.Equal(t, want, g.version)
		})
	}
}

// The leaves of trees end together: a group of which some had ended when the run stopped was cut as a whole, whatever places the log gives them.
func TestARestoredGroupOfTreesWasCutAsAWhole(t *testing.T) {
	w := &scriptedWork{size: 4, version: 3}
	for _, whole := range []bool{false, true} {
		f := NewFeed(w, Options{Limits: Limits{Groups: 1, Strata: 1, Capacity: 2, Staleness: 1, Updates: 1, Numbered: true, Steps: 30}, Size: 4, Version: 3, Dealt: []int{0}, Trees: true})
		g := f.admit(t.Context())[0]
		o := &store.Outstanding{Left: true, Finished: make([]*trajectory.Trajectory, 4), Partial: make([]*trajectory.Trajectory, 4)}
		ended := map[string]*trajectory.Trajectory{}
		for i, place := range []trajectory.Place{{Index: 0}, {Index: 1}, {Index: 0, Branch: "0"}, {Index: 0, Branch: "1"}} {
			if i < 3 || whole {
				o.Finished[i] = &trajectory.Trajectory{ID: place.ID(), Index: place.Index, Branch: place.Branch}
				ended[place.ID()] = o.Finished[i]
			}
		}
		f.reopen(g, o, Recovered{Ended: ended})
		require.Equal(t, whole, g.complete)
		require.Equal(t, slices.Repeat([]bool{!whole}, 4), g.cut)
		require.Equal(t, slices.Repeat([]bool{!whole}, 4), g.Running)
	}
}

// A trajectory that was running when a batch was taken is counted as cut though it ended before the run was killed; one that had failed before the
// batch, and is sampled again, is not.
func TestWhatABatchCutStaysSoAfterAKill(t *testing.T) {
	f := NewFeed(&scriptedWork{size: 4, version: 1}, Options{
		Limits: Limits{Groups: 1, Strata: 1, Capacity: 2, Staleness: 1, Updates: 1, Numbered: true, Steps: 30}, Step: 1, Version: 1, Size: 4, Dealt: []int{2},
	})
	o := store.Outstanding{
		Admission: store.Admission{Phase: store.Train, Step: 1, Task: trajectory.Task{ID: "q1"}, Size: 4, Position: 1}, Left: true, Cut: map[string]bool{store.ID(store.Train, 1, 0, 1): true},
		Partial: make([]*trajectory.Trajectory, 4),
	}
	ended := map[string]*trajectory.Trajectory{}
	for i := range 3 {
		tr := &trajectory.Trajectory{ID: store.ID(store.Train, 1, 0, i), Step: 1, Index: i, StopReason: trajectory.StopAnswer}
		if o.Finished = append(o.Finished, tr); i == 2 {
			tr.Fail(trajectory.OriginEngine, "gone")
		} else {
			ended[tr.ID] = tr
		}
	}
	o.Finished = append(o.Finished, nil)
	_, err := f.Restore(Recovered{Log: &store.Recovery{Dealt: []int{2}, Taken: map[int]int{1: 1}, Outstanding: []store.Outstanding{o}}, Ended: ended})
	require.NoError(t, err)
	b, err := f.Batch(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, [][]bool{{false, true, false, true}}, b.Cut)
	f.Close()
}

// A group without rounds may stay as it ended where its failures are few enough for a step: a run that ended because too much failed would end again.
func TestAGroupOfWhichTooMuchFailedIsTriedAgain(t *testing.T) {
	for _, tooMany := range []error{nil, errors.New("too many failed")} {
		w := &scriptedWork{size: 2, version: 3, tooMany: tooMany}
		f := NewFeed(w, Options{Limits: Limits{Groups: 1, Strata: 1, Capacity: 2, Staleness: 1, Updates: 1, Numbered: true, Steps: 30}, Size: 2, Version: 3, Dealt: []int{0}})
		g := f.admit(t.Context())[0]
		fine, failed := &trajectory.Trajectory{ID: "fine"}, &trajectory.Trajectory{ID: "failed"}
		failed.Fail(trajectory.OriginEngine, "gone")
		f.reopen(g, &store.Outstanding{Finished: []*trajectory.Trajectory{fine, failed}}, Recovered{Ended: map[string]*trajectory.Trajectory{"fine": fine}})
		f.mayStay([]*Slot{g.Slot})
		require.False(t, g.complete)
		require.Equal(t, []bool{false, true}, g.Running)
		require.Equal(t, tooMany == nil, g.ended != nil)
	}
}

// A flat group may stay as it ended where the batch that it is counted in may have so many failures, whatever part of it alone failed: it would be
// tried again at the cost of a newer group that has ended. What began and has no end yet counts as not failed.
func TestAGroupThatFailedWholeCostsNoNewerOne(t *testing.T) {
	const (
		failed = iota
		fine
		running
	)
	for name, c := range map[string]struct {
		groups []int
		most   float64
		again  []int // groups that go on, in order
	}{
		"few enough failed in the batch":            {[]int{failed, fine, fine, fine, fine}, 0.5, nil},
		"too many failed in the batch":              {[]int{failed, failed, failed, fine, fine, fine, fine}, 0.5, []int{2}},
		"groups of later batches do not count":      {[]int{failed, fine, fine, fine, fine}, 0.3, []int{0}},
		"what has no end yet may be of the batch":   {[]int{failed, running, fine, running, running}, 0.5, []int{1, 3, 4}},
		"what is of a later batch is not made good": {[]int{failed, running, fine, running, running}, 0.3, []int{0, 1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFeed(&scriptedWork{size: 2, version: 3, most: c.most}, Options{
				Limits: Limits{Groups: 2, Strata: 1, Capacity: 4, Staleness: 1, Updates: 1, Numbered: true, Steps: 30, Refills: 10}, Size: 2, Version: 3, Dealt: []int{0},
			})
			from := Recovered{Log: &store.Recovery{Taken: map[int]int{}, Dealt: []int{len(c.groups)}}, Ended: map[string]*trajectory.Trajectory{}}
			for g, state := range c.groups {
				from.Log.Taken[g/2] = g%2 + 1
				o := store.Outstanding{
					Admission: store.Admission{Phase: store.Train, Step: g / 2, Group: g % 2, Size: 2, Version: 3, Position: g},
					Finished:  make([]*trajectory.Trajectory, 2), Partial: make([]*trajectory.Trajectory, 2),
				}
				for i := range o.Finished {
					if state == running {
						continue
					}
					tr := &trajectory.Trajectory{ID: store.ID(store.Train, g/2, g%2, i), Index: i, Step: g / 2, Group: g % 2}
					if o.Finished[i] = tr; state == failed {
						tr.Fail(trajectory.OriginEngine, "gone")
					} else {
						from.Ended[tr.ID] = tr
					}
				}
				from.Log.Outstanding = append(from.Log.Outstanding, o)
			}
			_, err := f.Restore(from)
			require.NoError(t, err)
			var again []int
			for _, g := range f.waiting {
				again = append(again, g.at)
			}
			require.Equal(t, c.again, again)
			if c.again == nil {
				b := f.take()
				require.Len(t, b.All, 3)
				require.Len(t, f.plan.open, 2, "no group that had ended is given up")
				require.NoError(t, f.work.TooManyFailed(b.Step, b.All))
			}
		})
	}
}

// heldBack is scripted work some of whose groups end only when they are let go. Their tokens are of the version that they were admitted at.
type heldBack struct {
	*scriptedWork
	hold map[string]chan struct{} // by task
}

func (w heldBack) Sample(ctx context.Context, l *Group, ended func(index int)) (trajectory.Group, error) {
	if c := w.hold[l.Task.ID]; c != nil {
		<-c
	}
	return (&scriptedWork{size: w.size, version: l.version}).Sample(ctx, l, ended)
}

// A run in mode async that goes on with fewer groups in a batch, of which more are outstanding than such batches would have had, samples them
// to their ends: no new group takes the task of one that was not given up.
func TestARunGoesOnWithFewerGroupsThanAreOutstanding(t *testing.T) {
	old := trajectory.Task{ID: "old0"}
	w := heldBack{&scriptedWork{size: 2}, map[string]chan struct{}{old.ID: make(chan struct{})}}
	f := NewFeed(w, Options{Limits: Limits{Groups: 1, Strata: 1, Capacity: 6, Staleness: 5, Updates: 1, Numbered: true, Steps: 30}, Step: 1, Version: 1, Size: 2, Dealt: []int{2}})
	log := &store.Recovery{Dealt: []int{8}, Taken: map[int]int{1: 2, 2: 2, 3: 2}}
	for n := range 6 { // of batches of 2
		log.Outstanding = append(log.Outstanding, store.Outstanding{
			Admission: store.Admission{Phase: store.Train, Step: 1 + n/2, Group: n % 2, Task: trajectory.Task{ID: "old" + strconv.Itoa(n)}, Size: 2, Version: int32(n / 4), Position: 2 + n},
			Finished:  make([]*trajectory.Trajectory, 2), Partial: make([]*trajectory.Trajectory, 2),
		})
	}
	_, err := f.Restore(Recovered{Log: log, Ended: map[string]*trajectory.Trajectory{}})
	require.NoError(t, err)
	require.GreaterOrEqual(t, slices.Min(numbers(f.plan.open)), 0)
	trained := map[string]bool{}
	for version := int32(1); version < 12; version++ {
		if version == 3 {
			close(w.hold[old.ID])
		}
		b, err := f.Batch(t.Context(), version)
		require.NoError(t, err)
		require.Len(t, b.Trained, 1)
		require.False(t, trained[b.Trained[0].Task.ID], "trained twice")
		trained[b.Trained[0].Task.ID] = true
		f.Trained(t.Context(), version+1, true)
	}
	f.Close()
	for n := range 6 {
		require.Contains(t, trained, "old"+strconv.Itoa(n))
	}
	taken := map[store.GroupRef]bool{}
	for _, a := range w.admitted {
		at := store.GroupRef{Step: a.Step, Group: a.Group}
		require.Nil(t, a.RetryOf)
		require.False(t, taken[at] || a.Group < log.Taken[a.Step], "place %v is taken", at)
		taken[at] = true
	}
	require.NotEmpty(t, taken)
}

// A run that ended because too much failed goes on with fewer groups too: what its only round has is no earlier round, so that all of it is tried again.
func TestARoundThatFailedGoesOnWithFewerGroups(t *testing.T) {
	for _, groups := range []int{6, 4, 2} {
		f := NewFeed(&scriptedWork{size: 2, version: 3, tooMany: errors.New("too many failed")}, Options{
			Limits: Limits{Groups: groups, Strata: 1, Capacity: groups, Updates: 1, Refills: 10}, Step: 7, Size: 2, Version: 3, Dealt: []int{0},
		})
		from := Recovered{Log: &store.Recovery{Taken: map[int]int{7: 6}, Dealt: []int{6}}, Ended: map[string]*trajectory.Trajectory{}}
		for g := range 6 {
			o := store.Outstanding{
				Admission: store.Admission{Phase: store.Train, Step: 7, Group: g, Size: 2, Version: 3, Position: g}, Latest: true, Partial: make([]*trajectory.Trajectory, 2),
			}
			for i := range 2 {
				failed := &trajectory.Trajectory{ID: store.ID(store.Train, 7, g, i), Index: i, Group: g}
				failed.Fail(trajectory.OriginEngine, "gone")
				o.Finished = append(o.Finished, failed)
			}
			from.Log.Outstanding = append(from.Log.Outstanding, o)
		}
		_, err := f.Restore(from)
		require.NoError(t, err)
		require.Len(t, f.waiting, groups)
		require.NoError(t, f.failed())
	}
}

// What is in the update is told until the update is done, that of the last step too, behind which nothing begins.
func TestGroupsInTheUpdate(t *testing.T) {
	for _, more := range []bool{true, false} {
		w := &scriptedWork{size: 2, version: 1}
		f := NewFeed(w, Options{Limits: Limits{Groups: 2, Strata: 1, Capacity: 4, Staleness: 1, Updates: 1, Numbered: true, Steps: 9}, Size: 2, Version: 1, Dealt: []int{0}})
		b, err := f.Batch(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, b.Trained, 2)
		require.Equal(t, 2, f.Groups().Training)
		f.Trained(t.Context(), 2, more)
		f.joined.Wait()
		require.Zero(t, f.Groups().Training)
		require.Equal(t, more, len(w.sampled) > 4, "nothing begins behind the last step")
		f.Close()
	}
}
