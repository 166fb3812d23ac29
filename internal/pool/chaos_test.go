package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chaos makes members of which nothing can be relied upon.
type chaos struct {
	mu          sync.Mutex
	all         []*chaotic
	alive, most atomic.Int32
}

type chaotic struct {
	c       *chaos
	holders atomic.Int32
	closes  atomic.Int32
}

func (c *chaos) make(context.Context) (Member, error) {
	n := c.alive.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	sometimes()
	switch rand.IntN(10) {
	case 0:
		c.alive.Add(-1)
		return nil, errors.New("not today")
	case 1:
		c.alive.Add(-1)
		panic("not today")
	}
	m := &chaotic{c: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, m)
	return m, nil
}

// sometimes takes a moment.
func sometimes() {
	if rand.IntN(3) == 0 {
		time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond))))
	}
}

func (m *chaotic) Check(context.Context) error { return m.asked() }
func (m *chaotic) Clean(context.Context) error { return m.asked() }
func (m *chaotic) Memory() int64               { return rand.Int64N(100) }

// asked fails now and then, and panics when somebody holds the member.
func (m *chaotic) asked() error {
	sometimes()
	if m.holders.Load() != 0 || m.closes.Load() != 0 {
		panic(fmt.Sprintf("asked while it has %d holders and %d closes", m.holders.Load(), m.closes.Load()))
	}
	if rand.IntN(20) == 0 {
		return errors.New("it does not work any more")
	}
	return nil
}

func (m *chaotic) Close() error {
	sometimes()
	m.closes.Add(1)
	m.c.alive.Add(-1)
	return nil
}

// Holders that return, break, panic, leave or go silent, of members that fail in every way: nobody has a member that another one has, nothing is
// closed twice or while a lease holds it, no more are alive than the size, and nobody waits forever.
func TestHoldersAtOnce(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	var wrong atomic.Pointer[string]
	fail := func(format string, a ...any) {
		text := fmt.Sprintf(format, a...)
		wrong.CompareAndSwap(nil, &text)
	}
	var ended, failed, broken, replaced int64
	for round := range rounds {
		c := &chaos{}
		size := 1 + round%6
		p, err := New(Options{
			Name: "chaos", Make: c.make, Size: size, Warm: rand.IntN(size + 1), Starting: 1 + rand.IntN(3), Lease: 3 * time.Millisecond,
			Age: 20 * time.Millisecond, Uses: 10, Memory: 95, CheckAfter: 100 * time.Microsecond, Breaker: 3, Cool: 100 * time.Microsecond,
		})
		require.NoError(t, err)
		var all sync.WaitGroup
		for h := range 32 {
			all.Go(func() {
				for range 20 {
					hold(t.Context(), p, h, fail)
				}
			})
		}
		watch := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("somebody waits forever: %+v", p.Stats())) })
		all.Wait()
		watch.Stop()
		s := p.Stats()
		require.Zero(t, s.Lent+s.Waiting, "every lease came back")
		require.NoError(t, p.Close())
		require.Nil(t, wrong.Load(), "%v", wrong.Load())
		require.LessOrEqual(t, int(c.most.Load()), size)
		require.Zero(t, c.alive.Load())
		for _, m := range c.all {
			require.EqualValues(t, 1, m.closes.Load())
		}
		require.EqualValues(t, len(c.all), p.Stats().Made)
		ended, failed, broken, replaced = ended+s.Ended, failed+s.Failed, broken+s.Broken, replaced+s.Replaced
	}
	require.NotContains(t, []int64{ended, failed, broken, replaced}, int64(0), "all of it happened")
}

// hold is one lease of a holder.
func hold(ctx context.Context, p *Pool, h int, fail func(format string, a ...any)) {
	group := []string{"", "", "a", "b"}[h%4]
	if rand.IntN(8) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(time.Millisecond))))
		defer cancel()
	}
	l, err := p.Acquire(ctx, Owner{Group: group, Name: fmt.Sprint(h)})
	if err != nil {
		var open *OpenError
		if !errors.As(err, &open) && !errors.Is(err, context.DeadlineExceeded) {
			fail("an unknown error: %v", err)
		}
		sometimes()
		return
	}
	m := l.Member().(*chaotic)
	if n := m.holders.Add(1); n != 1 && isOpen(l.Done()) {
		fail("%d holders", n)
	}
	how := rand.IntN(40)
	defer l.Return()
	defer func() { _ = recover() }()
	sometimes()
	if m.closes.Load() != 0 && isOpen(l.Done()) {
		fail("closed while it is lent")
	}
	switch {
	case how < 2: // silent: the member is closed under its hands
		<-l.Done()
	case how < 4:
		m.holders.Add(-1)
		l.Break(errors.New("broken"))
	case how < 6:
		m.holders.Add(-1)
		panic("of a holder")
	default:
		l.Touch()
		m.holders.Add(-1)
	}
}

// Whoever asks first is served first, however many ask.
func TestFirstComeFirstServed(t *testing.T) {
	p, _ := open(t, Options{Size: 2})
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	first, err := p.Acquire(t.Context(), Owner{})
	require.NoError(t, err)
	second, err := p.Acquire(t.Context(), Owner{})
	require.NoError(t, err)
	for i := range 200 {
		all.Go(func() {
			l, err := p.Acquire(t.Context(), Owner{})
			if err == nil {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				l.Return()
			}
		})
		for p.Stats().Waiting != i+1 {
			time.Sleep(10 * time.Microsecond)
		}
	}
	second.Return()
	all.Wait()
	first.Return()
	require.True(t, slices.IsSorted(order))
	require.Len(t, order, 200)
}
