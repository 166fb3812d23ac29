package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// item is a member of the tests.
type item struct {
	n      int
	f      *factory
	closed atomic.Int32
	check  func() error
	clean  func() error
	memory int64
}

func (m *item) Close() error {
	m.closed.Add(1)
	m.f.closed.Add(1)
	return m.f.closeErr
}

func (m *item) Check(context.Context) error {
	m.f.checks.Add(1)
	if m.check == nil {
		return nil
	}
	return m.check()
}

func (m *item) Clean(context.Context) error {
	if m.clean == nil {
		return nil
	}
	return m.clean()
}

func (m *item) Memory() int64 { return m.memory }

// factory makes items. Its hooks are set before the pool is made.
type factory struct {
	before         func(ctx context.Context, n int) error // of the n-th make, from 1 on
	closeErr       error
	mu             sync.Mutex
	calls          int
	made           []*item
	closed, checks atomic.Int32
}

func (f *factory) make(ctx context.Context) (Member, error) {
	f.mu.Lock()
	f.calls++
	n := f.calls
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(ctx, n); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &item{n: len(f.made), f: f}
	f.made = append(f.made, m)
	return m, nil
}

func open(t testing.TB, o Options) (*Pool, *factory) {
	t.Helper()
	f := &factory{}
	return f.open(t, o), f
}

func (f *factory) open(t testing.TB, o Options) *Pool {
	t.Helper()
	o.Name, o.Make = "test", f.make
	p, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Equal(t, f.closeErr == nil, p.Close() == nil)
		for _, m := range f.made {
			require.EqualValues(t, 1, m.closed.Load(), "member %d is closed once", m.n)
		}
		s := p.Stats()
		require.Zero(t, s.Ready+s.Lent+s.Starting+s.Waiting)
		require.EqualValues(t, len(f.made), s.Made)
	})
	return p
}

// asked is an acquisition that goes on in a goroutine.
type asked struct {
	lease  *Lease
	err    error
	done   atomic.Bool
	cancel context.CancelFunc
}

// ask asks for a member and waits until nothing more happens.
func ask(t *testing.T, p *Pool, group, name string) *asked {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &asked{cancel: cancel}
	go func() {
		defer cancel()
		a.lease, a.err = p.Acquire(ctx, Owner{Group: group, Name: name})
		a.done.Store(true)
	}()
	synctest.Wait()
	return a
}

// pass lets time pass, and what happens in it end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func names(p *Pool) string {
	var all []string
	for _, h := range p.Stats().Holders {
		all = append(all, h.Owner.Name)
	}
	return strings.Join(all, " ")
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := open(t, Options{})
		a := ask(t, p, "", "a")
		require.Same(t, f.made[0], a.lease.Member())
		b := ask(t, p, "", "b")
		require.False(t, b.done.Load())
		pass(time.Second)
		a.lease.Return()
		require.False(t, isOpen(a.lease.Done()))
		synctest.Wait()
		require.Same(t, f.made[0], b.lease.Member())
		a.lease.Return() // of nothing: b has it
		a.lease.Break(errors.New("late"))
		a.lease.Touch()
		require.True(t, isOpen(b.lease.Done()))
		require.Equal(t, "b", names(p))
		b.lease.Break(errors.New("gone"))
		b.lease.Return()
		synctest.Wait()
		s := p.Stats()
		require.Equal(t, []int64{1, 1, 2, 0, 0}, []int64{s.Made, s.Broken, s.Leases, s.Ended, s.Replaced})
		require.InDelta(t, float64(time.Second), float64(s.WaitP99), 0.04*float64(time.Second))
		require.InDelta(t, float64(time.Second), float64(s.HeldP99), 0.04*float64(time.Second))
		require.Zero(t, s.WaitP50)
		require.Zero(t, s.HeldP50)
	})
}

func isOpen(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// A group's acquisitions get their members at once or not yet, in the group's turn.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := open(t, Options{Size: 4})
		one, two := ask(t, p, "", "one"), ask(t, p, "", "two")
		three := ask(t, p, "", "three")
		for i := range 3 {
			ask(t, p, "g", fmt.Sprint("g", i))
		}
		after := ask(t, p, "", "after")
		pass(gather)
		require.Equal(t, "one three two", names(p), "one is free, and the group needs three: neither it nor who came later has it")
		one.lease.Return()
		synctest.Wait()
		require.Equal(t, "three two", names(p))
		late := ask(t, p, "g", "late") // joins those that wait
		three.lease.Return()
		pass(time.Minute)
		require.Equal(t, "two", names(p), "now it needs four")
		late.cancel()
		pass(time.Second)
		require.Equal(t, "two g0 g1 g2", names(p), "who left is not waited for")
		require.False(t, after.done.Load())
		require.ErrorIs(t, late.err, context.Canceled)
		require.ErrorContains(t, late.err, "pool test: no member in 1m0s, with 1 of 4 lent and 4 waiting: ")
		two.lease.Return()
		synctest.Wait()
		require.True(t, after.done.Load())
	})
}

// The acquisitions of a group that arrive within a millisecond go together, without waiting longer than that.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := open(t, Options{Size: 4, Warm: 4})
		synctest.Wait()
		ask(t, p, "g", "a")
		single := ask(t, p, "", "single")
		pass(gather / 2)
		b := ask(t, p, "g", "b")
		require.Empty(t, names(p), "neither the group nor who came later")
		pass(gather / 2)
		require.Equal(t, "a b single", names(p))
		require.Equal(t, single.lease.since, b.lease.since)
		for i := range 4 {
			ask(t, p, "h", fmt.Sprint("h", i)) // so many that no more can come along: nothing is waited for
		}
		for _, l := range append([]*Lease{}, p.lent...) {
			l.Return()
		}
		synctest.Wait()
		require.Equal(t, "h0 h1 h2 h3", names(p))
	})
}

// A group of more than the pool gets all of it once it is whole, and the rest of it has another turn: nobody starves.
func TestGroupBeyondThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := open(t, Options{Size: 3})
		first := ask(t, p, "", "first")
		var group []*asked
		for i := range 5 {
			group = append(group, ask(t, p, "g", fmt.Sprint("g", i)))
			if i == 1 {
				ask(t, p, "", "single")
			}
		}
		pass(time.Minute)
		require.Equal(t, "first", names(p))
		first.lease.Return()
		synctest.Wait()
		require.Equal(t, "g0 g1 g2", names(p))
		more := ask(t, p, "g", "more")
		group[0].lease.Return()
		pass(time.Second)
		require.Equal(t, "g1 g2 single", names(p), "who came before the fourth of the group")
		group[1].lease.Return()
		group[2].lease.Return()
		pass(time.Second)
		require.Equal(t, "single", names(p), "three of the group wait for three")
		p.lent[0].Return()
		pass(time.Second)
		require.Equal(t, "g3 g4 more", names(p))
		require.True(t, more.done.Load())
	})
}

// A group whose members come and go without end does not keep others from their turn.
func TestGroupThatRunsDoesNotJumpTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := open(t, Options{Size: 2})
		a, b := ask(t, p, "g", "a"), ask(t, p, "g", "b")
		other := ask(t, p, "", "other")
		c := ask(t, p, "g", "c")
		a.lease.Return()
		pass(time.Second)
		require.True(t, other.done.Load())
		require.False(t, c.done.Load())
		b.lease.Return()
		pass(time.Second)
		require.True(t, c.done.Load())
	})
}

// A lease whose holder is silent ends: the member is closed, not lent again, and the place is free.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		p, f := open(t, Options{Lease: time.Minute, Note: func(text string) { notes = append(notes, text) }})
		a := ask(t, p, "g", "a")
		for range 10 {
			pass(50 * time.Second)
			a.lease.Touch()
		}
		b := ask(t, p, "", "b")
		require.True(t, isOpen(a.lease.Done()))
		pass(time.Minute - 1)
		require.True(t, isOpen(a.lease.Done()))
		pass(1)
		require.False(t, isOpen(a.lease.Done()))
		require.EqualValues(t, 1, f.made[0].closed.Load())
		require.Same(t, f.made[1], b.lease.Member())
		a.lease.Return()
		a.lease.Break(nil)
		a.lease.Touch()
		require.EqualValues(t, 1, p.Stats().Ended)
		require.Equal(t, []string{"pool test: the lease of a of group g ended, for its holder was silent for 1m0s; its member is closed"}, notes)
		require.Zero(t, p.Stats().HeldP50, "it was not given back")
		b.lease.Return()
		pass(time.Hour)
		require.EqualValues(t, 1, p.Stats().Ended, "what was given back in time")
	})
}

// Members are made ahead, so many at once, and again when one is lent.
func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{before: func(context.Context, int) error { time.Sleep(time.Second); return nil }}
		p := f.open(t, Options{Size: 7, Warm: 5, Starting: 2})
		for _, ready := range []int{0, 2, 4, 5, 5} {
			synctest.Wait()
			s := p.Stats()
			require.Equal(t, []int{ready, min(2, 5-ready)}, []int{s.Ready, s.Starting})
			pass(time.Second)
		}
		a := ask(t, p, "", "a")
		require.True(t, a.done.Load(), "at once")
		require.Equal(t, 1, p.Stats().Starting)
		ask(t, p, "", "b")
		ask(t, p, "", "c")
		require.Equal(t, 2, p.Stats().Starting)
		pass(time.Minute)
		require.Equal(t, 4, p.Stats().Ready, "the size counts too")
		require.Len(t, f.made, 7)
		a.lease.Break(nil)
		pass(time.Minute)
		require.Equal(t, 5, p.Stats().Ready)
	})
}

// A waiter that leaves leaves no hole: the member that was made for it is the next one's, and who waits behind it has its turn.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{before: func(context.Context, int) error { time.Sleep(time.Second); return nil }}
		p := f.open(t, Options{})
		a := ask(t, p, "", "a")
		a.cancel()
		synctest.Wait()
		require.ErrorIs(t, a.err, context.Canceled)
		pass(2 * time.Second)
		require.Equal(t, 1, p.Stats().Ready)
		b := ask(t, p, "", "b")
		require.True(t, b.done.Load())
		c, d := ask(t, p, "", "c"), ask(t, p, "", "d")
		c.cancel()
		synctest.Wait()
		b.lease.Return()
		synctest.Wait()
		require.True(t, d.done.Load())
		require.EqualError(t, c.err, "pool test: no member in 0s, with 1 of 1 lent and 1 waiting: context canceled")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d.lease.Return()
		synctest.Wait()
		_, err := p.Acquire(ctx, Owner{})
		require.ErrorIs(t, err, context.Canceled, "also where one is ready")
		require.Equal(t, 1, p.Stats().Ready)
	})
}

// A member that is given to a waiter in the moment in which its ctx ends is the next one's, and counts no use.
func TestLeavingInTheSameMoment(t *testing.T) {
	p, f := open(t, Options{Uses: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := &waiter{since: time.Now(), got: make(chan granted, 1)}
	p.mu.Lock()
	p.queue.add(w, p.tick)
	p.dispatch()
	p.unlock()
	for p.Stats().Lent == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err := p.leave(w, ctx.Err())
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, p.Stats().Leases)
	l, err := p.Acquire(t.Context(), Owner{})
	require.NoError(t, err)
	require.Same(t, f.made[0], l.Member())
	l.Return()
	require.EqualValues(t, 1, p.Stats().Leases)
}

// TryAcquire takes what is ready and good, from nobody who waits.
func TestTryAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := open(t, Options{Size: 2, CheckAfter: time.Minute})
		_, ok := p.TryAcquire(Owner{})
		require.False(t, ok)
		synctest.Wait()
		require.Empty(t, f.made, "nothing is made for it")
		ask(t, p, "", "a").lease.Return()
		synctest.Wait()
		l, ok := p.TryAcquire(Owner{Name: "b"})
		require.True(t, ok)
		require.Equal(t, "b", names(p))
		l.Return()
		pass(time.Minute + 1)
		_, ok = p.TryAcquire(Owner{})
		require.False(t, ok, "it is tried first")
		synctest.Wait()
		require.EqualValues(t, 1, f.checks.Load())
		l, ok = p.TryAcquire(Owner{})
		require.True(t, ok)
		l.Return()
		synctest.Wait()
		ask(t, p, "g", "c")
		require.Equal(t, 1, p.Stats().Ready)
		_, ok = p.TryAcquire(Owner{})
		require.False(t, ok, "somebody waits, though it gathers")
		pass(gather)
		require.Equal(t, "c", names(p))
	})
}

func TestReplaced(t *testing.T) {
	use := func(t *testing.T, p *Pool) *item {
		a := ask(t, p, "", "a")
		require.NoError(t, a.err)
		m := a.lease.Member().(*item)
		a.lease.Return()
		synctest.Wait()
		return m
	}
	for name, c := range map[string]struct {
		options  Options
		run      func(t *testing.T, p *Pool) (numbers []int)
		want     []int
		replaced int64
		broken   int64
	}{
		"uses": {Options{Uses: 2}, func(t *testing.T, p *Pool) []int {
			return []int{use(t, p).n, use(t, p).n, use(t, p).n, use(t, p).n, use(t, p).n}
		}, []int{0, 0, 1, 1, 2}, 2, 0},
		"age when given back": {Options{Age: time.Hour}, func(t *testing.T, p *Pool) []int {
			a := ask(t, p, "", "a")
			pass(time.Hour + 1)
			a.lease.Return()
			synctest.Wait()
			require.Zero(t, p.Stats().Ready)
			return []int{use(t, p).n}
		}, []int{1}, 1, 0},
		"age when ready": {Options{Age: time.Hour, CheckAfter: 24 * time.Hour}, func(t *testing.T, p *Pool) []int {
			first := use(t, p).n
			pass(time.Hour)
			second := use(t, p).n
			pass(1)
			return []int{first, second, use(t, p).n}
		}, []int{0, 0, 1}, 1, 0},
		"an age shorter than the group's making": {Options{Age: time.Second, Size: 3, Starting: 1, Make: func(context.Context) (Member, error) { time.Sleep(time.Minute); return nil, nil }}, func(t *testing.T, p *Pool) []int {
			ask(t, p, "g", "a")
			ask(t, p, "g", "b")
			ask(t, p, "g", "c")
			pass(4 * time.Minute)
			return []int{p.Stats().Lent}
		}, []int{3}, 0, 0},
		"memory": {Options{Memory: 100}, func(t *testing.T, p *Pool) []int {
			m := use(t, p)
			m.memory = 100
			n := use(t, p)
			n.memory = 101
			return []int{m.n, n.n, use(t, p).n, use(t, p).n}
		}, []int{0, 0, 0, 1}, 1, 0},
		"check": {Options{CheckAfter: time.Minute}, func(t *testing.T, p *Pool) []int {
			m := use(t, p)
			m.check = func() error { return errors.New("ill") }
			pass(time.Minute)
			n := use(t, p)
			pass(time.Minute + 1)
			return []int{m.n, n.n, use(t, p).n}
		}, []int{0, 0, 1}, 1, 0},
		"check that panics": {Options{CheckAfter: time.Minute}, func(t *testing.T, p *Pool) []int {
			use(t, p).check = func() error { panic("ill") }
			pass(time.Minute + 1)
			return []int{use(t, p).n}
		}, []int{1}, 1, 0},
		"clean": {Options{}, func(t *testing.T, p *Pool) []int {
			use(t, p).clean = func() error { return nil }
			m := use(t, p)
			m.clean = func() error { return errors.New("it does not go off") }
			return []int{m.n, use(t, p).n, use(t, p).n}
		}, []int{0, 0, 1}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &factory{}
				if slow := c.options.Make; slow != nil {
					f.before = func(ctx context.Context, _ int) error { _, err := slow(ctx); return err }
				}
				p := f.open(t, c.options)
				require.Equal(t, c.want, c.run(t, p))
				s := p.Stats()
				require.Equal(t, []int64{c.replaced, c.broken}, []int64{s.Replaced, s.Broken})
			})
		})
	}
}

// Members that waited long are tried all at once for a group, once for it, and those that came back lately are not.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := open(t, Options{Size: 3, Warm: 3, CheckAfter: time.Second})
		synctest.Wait()
		for i, m := range f.made {
			m.check = func() error { time.Sleep(time.Duration(i+1) * time.Minute); return nil } // later than the first is checked again
		}
		pass(time.Hour)
		a, b, c := ask(t, p, "g", "a"), ask(t, p, "g", "b"), ask(t, p, "g", "c")
		pass(3 * time.Minute)
		require.True(t, a.done.Load() && b.done.Load() && c.done.Load())
		require.EqualValues(t, 3, f.checks.Load())
		a.lease.Return()
		pass(time.Second)
		require.True(t, ask(t, p, "", "d").done.Load())
		require.EqualValues(t, 3, f.checks.Load())
	})
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		var works atomic.Bool
		f := &factory{before: func(_ context.Context, n int) error {
			time.Sleep(10 * time.Millisecond)
			if works.Load() {
				return nil
			}
			return fmt.Errorf("fault %d", n)
		}}
		p := f.open(t, Options{Size: 8, Starting: 1, Breaker: 3, Cool: time.Second, Note: func(text string) { notes = append(notes, text) }})
		a, b := ask(t, p, "", "a"), ask(t, p, "g", "b")
		pass(25 * time.Millisecond)
		require.False(t, a.done.Load())
		pass(5 * time.Millisecond)
		const text = "3 members in a row could not be made or broke at once; the next is tried in 1s; the last failure: fault 3"
		require.EqualError(t, a.err, "pool test: "+text)
		require.EqualError(t, b.err, "pool test: "+text)
		var open *OpenError
		require.ErrorAs(t, a.err, &open)
		require.EqualError(t, open.Last, "fault 3")
		require.Equal(t, []string{"pool test: " + text}, notes)
		for trip := range 8 { // each time one make is tried, and the time doubles
			require.Equal(t, 3+trip, f.calls)
			require.True(t, p.Stats().Open)
			wait := time.Second << min(trip, 5)
			pass(wait - 1)
			now := time.Now()
			_, err := p.Acquire(t.Context(), Owner{})
			require.ErrorContains(t, err, fmt.Sprintf("%d members", 3+trip))
			require.Equal(t, now, time.Now(), "at once")
			pass(1)
			require.False(t, ask(t, p, "", "c").done.Load())
			d := ask(t, p, "", "d")
			pass(10 * time.Millisecond)
			require.ErrorContains(t, d.err, fmt.Sprintf("fault %d", 4+trip))
		}
		require.Len(t, notes, 1)
		works.Store(true)
		pass(time.Hour)
		require.Equal(t, 11, f.calls, "nobody waits, nothing is tried")
		e := ask(t, p, "", "e")
		pass(10 * time.Millisecond)
		require.NoError(t, e.err)
		require.False(t, p.Stats().Open)
		require.Equal(t, "pool test: its members can be made again", notes[1])
		works.Store(false)
		e.lease.Break(nil)
		g := ask(t, p, "", "f")
		pass(time.Second)
		require.ErrorContains(t, g.err, "3 members in a row could not be made or broke at once; the next is tried in 1s", "the row begins anew")
	})
}

// However many wait and however many may be made at once, an open breaker tries one.
func TestBreakerTriesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{before: func(context.Context, int) error {
			time.Sleep(10 * time.Millisecond)
			return errors.New("fault")
		}}
		p := f.open(t, Options{Size: 8, Warm: 4, Breaker: 4})
		pass(20 * time.Millisecond)
		require.Equal(t, 7, f.calls, "the fourth that fails opens it, when three more are on their way, which do not open it again")
		pass(990*time.Millisecond - 1)
		require.Zero(t, p.Stats().Starting)
		pass(1)
		ask(t, p, "", "a")
		ask(t, p, "", "b")
		require.Equal(t, 1, p.Stats().Starting)
		pass(10 * time.Millisecond)
		require.Equal(t, 8, f.calls)
		require.Zero(t, p.Stats().Waiting)
		pass(2*time.Second - 1)
		require.Equal(t, 8, f.calls)
	})
}

// An open breaker does not keep from anybody what is alive, and what a warm minimum lacks is tried without anybody who waits.
func TestBreakerLendsWhatIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no more")
		var works atomic.Bool
		works.Store(true)
		f := &factory{before: func(context.Context, int) error {
			if works.Load() {
				return nil
			}
			return broken
		}}
		p := f.open(t, Options{Size: 4, Warm: 2, Starting: 1, Breaker: 2})
		synctest.Wait()
		works.Store(false)
		a := ask(t, p, "", "a")
		require.True(t, p.Stats().Open)
		var group []*asked
		for i := range 3 {
			group = append(group, ask(t, p, "g", fmt.Sprint("g", i)))
		}
		pass(10 * time.Millisecond)
		require.Equal(t, "a", names(p), "the group waits for all that is alive")
		a.lease.Return()
		synctest.Wait()
		require.Equal(t, "g0 g1", names(p))
		group[0].lease.Break(errors.New("gone"))
		require.False(t, group[2].done.Load())
		group[1].lease.Return()
		synctest.Wait()
		require.NoError(t, group[2].err)
		group[2].lease.Break(errors.New("gone"))
		synctest.Wait()
		_, err := p.Acquire(t.Context(), Owner{})
		require.ErrorIs(t, err, broken)
		works.Store(true)
		pass(time.Minute)
		require.Equal(t, 2, p.Stats().Ready)
		require.False(t, p.Stats().Open)
	})
}

// Members that can be made but break in their first lease open the breaker too, and one lease that is given back closes it.
func TestBreakerOfMembersThatBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes []string
		p, f := open(t, Options{Size: 2, Breaker: 3, Note: func(text string) { notes = append(notes, text) }})
		breaks := func() error {
			a := ask(t, p, "", "a")
			if a.err == nil {
				require.True(t, a.done.Load())
				a.lease.Break(errors.New("crash"))
				synctest.Wait()
			}
			return a.err
		}
		require.NoError(t, breaks())
		require.NoError(t, breaks())
		a := ask(t, p, "", "a")
		a.lease.Return() // the row ends
		for range 4 {    // the first has been lent before: that says nothing
			require.NoError(t, breaks())
		}
		require.ErrorContains(t, breaks(), "3 members in a row could not be made or broke at once; the next is tried in 1s; the last failure: crash")
		pass(time.Second)
		require.NoError(t, breaks(), "one is tried")
		require.ErrorContains(t, breaks(), "4 members in a row could not be made or broke at once; the next is tried in 2s")
		pass(2 * time.Second)
		b := ask(t, p, "", "b")
		require.True(t, p.Stats().Open)
		b.lease.Return()
		require.False(t, p.Stats().Open)
		require.Len(t, notes, 2)
		require.Equal(t, "pool test: its members hold again", notes[1])
		require.Len(t, f.made, 8)
	})
}

// A maker that panics, returns nothing, or takes too long is a make that failed.
func TestMake(t *testing.T) {
	for name, c := range map[string]struct {
		make func(ctx context.Context) (Member, error)
		want string
	}{
		"panics":        {func(context.Context) (Member, error) { panic("ouch") }, "its maker panicked: ouch"},
		"nothing":       {func(context.Context) (Member, error) { return nil, nil }, "its maker returned nothing"},
		"takes forever": {func(ctx context.Context) (Member, error) { <-ctx.Done(); return nil, ctx.Err() }, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := New(Options{Name: "test", Breaker: 2, Make: c.make})
				require.NoError(t, err)
				_, err = p.Acquire(t.Context(), Owner{})
				require.ErrorContains(t, err, "the last failure: "+c.want)
				require.EqualValues(t, 2, p.Stats().Failed)
				require.NoError(t, p.Close())
			})
		})
	}
}

// Close ends the leases, closes what is ready, lent and made, and waits for all of it; who waits is told.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{before: func(ctx context.Context, n int) error {
			if n == 3 {
				<-ctx.Done() // and it is made nevertheless
				pass(time.Minute)
			}
			return nil
		}}
		p := f.open(t, Options{Size: 3, Warm: 1, Lease: time.Hour})
		a := ask(t, p, "", "a")
		b := ask(t, p, "g", "b")
		pass(time.Second)
		c := ask(t, p, "g", "c")
		at := time.Now()
		require.NoError(t, p.Close())
		require.Equal(t, time.Minute, time.Since(at))
		require.NoError(t, p.Close())
		synctest.Wait()
		require.False(t, isOpen(a.lease.Done()))
		require.False(t, isOpen(b.lease.Done()))
		require.ErrorIs(t, c.err, ErrClosed)
		a.lease.Return()
		b.lease.Break(nil)
		_, err := p.Acquire(t.Context(), Owner{})
		require.EqualError(t, err, "pool test: the pool is closed")
		require.Len(t, f.made, 3)
		require.Zero(t, p.Stats().Ended)
	})
	synctest.Test(t, func(t *testing.T) {
		f := &factory{closeErr: errors.New("stuck")}
		p := f.open(t, Options{Size: 2, Warm: 2})
		a := ask(t, p, "", "a")
		a.lease.Break(nil)
		require.EqualError(t, p.Close(), "pool test: 2 members did not close well, the first: stuck")
	})
}

func TestOptions(t *testing.T) {
	maker := func(context.Context) (Member, error) { return nil, nil }
	for text, o := range map[string]Options{
		"pool: Name or Make is missing":                            {Name: "x"},
		"pool x: a warm minimum of 2 is more than its size 1":      {Name: "x", Make: maker, Warm: 2},
		"pool x: no number or time of its options may be below 0;": {Name: "x", Make: maker, Age: -1},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, text)
	}
}

func TestSet(t *testing.T) {
	var s Set
	var all []*factory
	add := func(name string) (*Pool, error) {
		f := &factory{}
		all = append(all, f)
		p, err := New(Options{Name: name, Make: f.make, Size: len(all)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p, s.Add(p)
	}
	list := func() (out []string) {
		for _, one := range s.All() {
			out = append(out, fmt.Sprint(one.Name, one.Size))
		}
		return out
	}
	a, err := add("a")
	require.NoError(t, err)
	b, err := add("b")
	require.NoError(t, err)
	_, err = add("a")
	require.EqualError(t, err, "pool a: there is a pool of this name already; give one of the two another name")
	require.Equal(t, []string{"a1", "b2"}, list())
	require.NoError(t, a.Close())
	require.Equal(t, []string{"b2"}, list())
	_, err = add("a")
	require.NoError(t, err)
	require.Equal(t, []string{"b2", "a4"}, list())
	l, err := b.Acquire(t.Context(), Owner{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.False(t, isOpen(l.Done()))
	require.EqualValues(t, 1, all[1].closed.Load())
	_, err = add("c")
	require.ErrorContains(t, err, "the pools of the job are closed")
	require.NoError(t, s.Close())
	require.Empty(t, list())
}

// A member that does not close well is told of once: by its pool, or by the set where that closes it.
func TestSetTellsOnce(t *testing.T) {
	for _, first := range []bool{true, false} {
		var s Set
		p, err := New(Options{Name: "a", Make: func(context.Context) (Member, error) { return stuck{}, nil }})
		require.NoError(t, err)
		require.NoError(t, s.Add(p))
		l, err := p.Acquire(t.Context(), Owner{})
		require.NoError(t, err)
		l.Return()
		if first {
			require.ErrorContains(t, p.Close(), "it does not close")
			require.NoError(t, s.Close())
		} else {
			require.ErrorContains(t, s.Close(), "it does not close")
		}
	}
}

// A set that is closed waits for a pool whose own Close is under way, and so does another Close of the set.
func TestSetWaits(t *testing.T) {
	for _, first := range []string{"the pool's Close", "the set's Close"} {
		synctest.Test(t, func(t *testing.T) {
			var s Set
			p, err := New(Options{Name: "a", Warm: 1, Make: func(context.Context) (Member, error) { return slow{}, nil }})
			require.NoError(t, err)
			require.NoError(t, s.Add(p))
			synctest.Wait()
			var firstErr error
			go func() {
				if first == "the pool's Close" {
					firstErr = p.Close()
				} else {
					firstErr = s.Close()
				}
			}()
			synctest.Wait()
			require.Empty(t, s.All(), "its name is free")
			at := time.Now()
			require.NoError(t, s.Close(), "what is told to another")
			require.Equal(t, time.Minute, time.Since(at), first)
			synctest.Wait()
			require.ErrorContains(t, firstErr, "it took long")
		})
	}
}

// slow takes a minute to close.
type slow struct{}

func (slow) Close() error {
	time.Sleep(time.Minute)
	return errors.New("it took long")
}

type stuck struct{}

func (stuck) Close() error { return errors.New("it does not close") }

func TestDurations(t *testing.T) {
	var d Durations
	require.Zero(t, d.Quantile(0.5))
	for _, v := range []time.Duration{-1, 0, 1, 15, 16, 31, 32, 33, 999, time.Microsecond, 12345678, time.Hour, 1<<63 - 1} {
		d = Durations{}
		d.Add(v)
		require.InDelta(t, float64(max(v, 0)), float64(d.Quantile(0.5)), 0.04*float64(max(v, 0)), v)
	}
	d = Durations{}
	for i := range 1000 {
		d.Add(time.Duration(i) * time.Millisecond)
	}
	require.InDelta(t, 500, d.Quantile(0.5).Milliseconds(), 20)
	require.InDelta(t, 990, d.Quantile(0.99).Milliseconds(), 40)
	require.Zero(t, testing.AllocsPerRun(100, func() { d.Add(time.Second) }))
}

// The numbers between two moments are those of what happened between them, and who waits is named in the order in which it is served.
func TestStatsSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Options{Name: "a", Make: func(context.Context) (Member, error) { time.Sleep(time.Second); return &closing{}, nil }})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close()) }()
		l, err := p.Acquire(t.Context(), Owner{Name: "first"})
		require.NoError(t, err)
		before := p.Stats()
		require.InEpsilon(t, time.Second, before.WaitP99, 0.05)
		var all sync.WaitGroup
		for _, name := range []string{"b", "c"} {
			all.Go(func() {
				got, err := p.Acquire(t.Context(), Owner{Name: name, Group: "g" + name})
				if err == nil {
					time.Sleep(10 * time.Millisecond)
					got.Return()
				}
			})
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		now := p.Stats()
		require.Len(t, now.Waiters, 2)
		require.Equal(t, Owner{Name: "b", Group: "gb"}, now.Waiters[0].Owner)
		require.Equal(t, "c", now.Waiters[1].Owner.Name)
		l.Return()
		all.Wait()
		since := p.Stats().Since(before)
		require.EqualValues(t, 2, since.Leases)
		require.Zero(t, since.Made)
		require.Less(t, since.WaitP99, 100*time.Millisecond, "the second of the first lease was before")
		require.Equal(t, p.Stats().WaitP99, p.Stats().Since(Stats{}).WaitP99)
	})
}

type closing struct{}

func (*closing) Close() error { return nil }
