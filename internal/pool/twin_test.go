package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// twin is a pool of plain lists in which nothing happens at once: what was asked, made, lent and closed follows from one operation after the other.
type twin struct {
	size, warm, starts, uses int
	lease                    time.Duration
	now                      time.Time
	queue                    []*twinUnit
	ready                    []int // members; the last is lent first
	starting                 int
	lent                     map[int]*twinLease // by waiter
	closing                  []int              // members
	used                     map[int]int
	got                      map[int]int // the member of each waiter that was served
	ended                    int
}

type twinUnit struct {
	group   string
	newest  bool // of its group
	ripe    time.Time
	waiters []int
}

type twinLease struct {
	member  int
	touched time.Time
}

func (w *twin) waiting() (n int) {
	for _, u := range w.queue {
		n += len(u.waiters)
	}
	return n
}

func (w *twin) settle() {
	for len(w.queue) > 0 && !w.now.Before(w.queue[0].ripe) && len(w.ready) >= len(w.queue[0].waiters) {
		for _, id := range w.queue[0].waiters {
			m := w.ready[len(w.ready)-1]
			w.ready = w.ready[:len(w.ready)-1]
			w.lent[id] = &twinLease{m, w.now}
			w.got[id] = m
		}
		w.queue = w.queue[1:]
	}
	for w.starting < w.starts && len(w.ready)+w.starting < w.waiting()+w.warm && len(w.ready)+len(w.lent)+len(w.closing)+w.starting < w.size {
		w.starting++
	}
}

func (w *twin) acquire(id int, group string) {
	var u *twinUnit
	for _, one := range w.queue {
		if group != "" && one.group == group && one.newest {
			u = one
		}
	}
	if u == nil || len(u.waiters) == w.size {
		if u != nil {
			u.newest = false
		}
		u = &twinUnit{group: group, newest: true, ripe: w.now}
		if group != "" {
			u.ripe = w.now.Add(gather)
		}
		w.queue = append(w.queue, u)
	}
	if u.waiters = append(u.waiters, id); len(u.waiters) == w.size {
		u.ripe = w.now
	}
}

func (w *twin) leave(id int) {
	for _, u := range w.queue {
		u.waiters = slices.DeleteFunc(u.waiters, func(one int) bool { return one == id })
	}
	w.queue = slices.DeleteFunc(w.queue, func(u *twinUnit) bool { return len(u.waiters) == 0 })
}

func (w *twin) end(id int, again bool) {
	m := w.lent[id].member
	delete(w.lent, id)
	if w.used[m]++; again && (w.uses == 0 || w.used[m] < w.uses) {
		w.ready = append(w.ready, m)
	} else {
		w.closing = append(w.closing, m)
	}
}

// pass lets time pass up to a moment, one timer after the other.
func (w *twin) pass(until time.Time) {
	for {
		next, silent := until, -1
		for _, u := range w.queue {
			if u.ripe.After(w.now) && u.ripe.Before(next) {
				next = u.ripe
			}
		}
		for id, l := range w.lent {
			if at := l.touched.Add(w.lease); w.lease > 0 && at.Before(next) {
				next, silent = at, id
			}
		}
		w.now = next
		if silent >= 0 {
			w.end(silent, false)
			w.ended++
		}
		w.settle()
		if next.Equal(until) {
			return
		}
	}
}

// driven are the makes and closes of a pool, each of which ends when the test says so.
type driven struct {
	mu     sync.Mutex
	makes  []chan error
	closes map[int]chan struct{}
	closed map[int]int
	made   int
	free   bool // nothing waits any more
}

type drivenMember struct {
	d *driven
	n int
}

func (m *drivenMember) Close() error {
	m.d.mu.Lock()
	m.d.closed[m.n]++
	c := make(chan struct{})
	m.d.closes[m.n] = c
	if m.d.free {
		close(c)
	}
	m.d.mu.Unlock()
	<-c
	return nil
}

func (d *driven) make(ctx context.Context) (Member, error) {
	d.mu.Lock()
	c := make(chan error)
	d.makes = append(d.makes, c)
	d.mu.Unlock()
	select {
	case err := <-c:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	return &drivenMember{d, d.made - 1}, nil
}

// A hundred thousand random operations on pools of random options: after each of them the pool has lent, made and closed what its twin says, to
// whom and which. A member is closed once, and no more are alive than the pool's size.
func TestRandomOperationsAgainstATwin(t *testing.T) {
	steps := 100_000
	if testing.Short() {
		steps = 5_000
	}
	for round := range steps / 500 {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(round), 19))
			w := &twin{
				size: 1 + r.IntN(5), starts: 1 + r.IntN(3), uses: r.IntN(4), now: time.Now(),
				lent: map[int]*twinLease{}, used: map[int]int{}, got: map[int]int{},
			}
			w.warm = r.IntN(w.size + 1)
			if r.IntN(2) == 0 {
				w.lease = 20 * time.Millisecond
			}
			against(t, r, w, 500)
		})
	}
}

func against(t *testing.T, r *rand.Rand, w *twin, steps int) {
	d := &driven{closes: map[int]chan struct{}{}, closed: map[int]int{}}
	p, err := New(Options{
		Name: "twin", Make: d.make, Size: w.size, Warm: w.warm, Starting: w.starts, Uses: w.uses, Lease: w.lease,
		MakeTime: time.Hour, Breaker: 1 << 30,
	})
	require.NoError(t, err)
	type acquisition struct {
		lease  *Lease
		err    error
		cancel context.CancelFunc
	}
	var mu sync.Mutex
	all := map[int]*acquisition{}
	id := 0
	anyLease := func() (int, *Lease) {
		ids := slices.Sorted(maps.Keys(w.lent))
		if len(ids) == 0 {
			return 0, nil
		}
		n := ids[r.IntN(len(ids))]
		return n, all[n].lease
	}
	var said []string // operations, for whoever reads a failure
	for step := range steps {
		op := r.IntN(20)
		said = append(said, fmt.Sprint(op))
		switch {
		case op < 5: // somebody asks, alone or with others of its group
			group, n := "", 1
			if op > 2 {
				group, n = fmt.Sprint(r.IntN(3)), 1+r.IntN(4)
			}
			for range n {
				ctx, cancel := context.WithCancel(t.Context())
				a := &acquisition{cancel: cancel}
				all[id] = a
				go func() {
					l, err := p.Acquire(ctx, Owner{Group: group, Name: "x"})
					mu.Lock()
					defer mu.Unlock()
					a.lease, a.err = l, err
				}()
				synctest.Wait()
				w.acquire(id, group)
				w.settle()
				id++
			}
		case op < 7: // somebody leaves
			if w.waiting() > 0 {
				u := w.queue[r.IntN(len(w.queue))]
				n := u.waiters[r.IntN(len(u.waiters))]
				all[n].cancel()
				w.leave(n)
			}
		case op < 11: // a lease ends, and once more
			if n, l := anyLease(); l != nil {
				again := op < 10
				if again {
					l.Return()
				} else {
					l.Break(errors.New("broken"))
				}
				l.Return()
				l.Break(nil)
				w.end(n, again)
			}
		case op == 11:
			if n, l := anyLease(); l != nil {
				l.Touch()
				w.lent[n].touched = w.now
			}
		case op < 16: // a make ends
			d.mu.Lock()
			var c chan error
			if len(d.makes) > 0 {
				i := r.IntN(len(d.makes))
				c = d.makes[i]
				d.makes = slices.Delete(d.makes, i, i+1)
			}
			d.mu.Unlock()
			if c != nil {
				w.starting--
				if op == 15 {
					c <- errors.New("not made")
				} else {
					w.ready = slices.Insert(w.ready, 0, d.made)
					c <- nil
				}
			}
		case op < 18: // a close ends
			if len(w.closing) > 0 {
				m := w.closing[0]
				w.closing = w.closing[1:]
				close(d.closes[m])
			}
		default:
			until := w.now.Add(time.Duration(1 + r.Int64N(int64(3*time.Millisecond))))
			w.pass(until)
			time.Sleep(time.Until(until))
		}
		w.settle()
		synctest.Wait()
		s := p.Stats()
		require.Equal(t, []int{len(w.ready), len(w.lent), w.starting, w.waiting()}, []int{s.Ready, s.Lent, s.Starting, s.Waiting}, "ready, lent, starting, waiting after %d steps: %v", step, said)
		require.Len(t, d.makes, s.Starting)
		require.LessOrEqual(t, s.Starting, w.starts)
		closed := 0
		for m, times := range d.closed {
			require.Equal(t, 1, times, "closes of member %d", m)
			if !slices.Contains(w.closing, m) {
				closed++
			}
		}
		alive := s.Ready + s.Lent + len(w.closing)
		require.Equal(t, d.made, closed+alive, "made is closed and alive")
		require.LessOrEqual(t, alive+s.Starting, w.size)
		require.EqualValues(t, w.ended, s.Ended)
		mu.Lock()
		for n, l := range w.lent {
			require.NotNil(t, all[n].lease, "waiter %d has its lease after %d steps: %v", n, step, said)
			require.Equal(t, l.member, all[n].lease.Member().(*drivenMember).n)
			require.True(t, isOpen(all[n].lease.Done()))
			require.Zero(t, d.closed[l.member], "nobody closes what is lent")
		}
		for n, a := range all {
			if _, lent := w.lent[n]; lent || a.lease == nil && a.err == nil {
				continue
			}
			if m, served := w.got[n]; served {
				require.Equal(t, m, a.lease.Member().(*drivenMember).n)
				require.False(t, isOpen(a.lease.Done()))
			} else {
				require.ErrorIs(t, a.err, context.Canceled)
			}
			delete(all, n)
		}
		mu.Unlock()
	}
	d.mu.Lock()
	d.free = true
	for _, m := range w.closing {
		close(d.closes[m])
	}
	d.mu.Unlock()
	require.NoError(t, p.Close())
	require.Len(t, d.closed, d.made)
	synctest.Wait()
	for _, a := range all {
		require.True(t, errors.Is(a.err, ErrClosed) || !isOpen(a.lease.Done()))
	}
}
