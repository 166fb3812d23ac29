package tools

import (
	"context"
	"slices"
	"sync"
	"time"
)

// gate lets the calls of one tool in: so many at once, and so many a second with equal steps between them. Those who wait come in turn,
// one call of each trajectory and then round again, so that a trajectory with a hundred calls does not hold up the others; the calls of
// one trajectory keep their order.
type gate struct {
	places int           // 0: any number
	step   time.Duration // between two calls; 0: none

	mu      sync.Mutex
	inside  int
	next    time.Time // before which nobody comes in
	queue   []*queued // trajectories that wait, in turn
	waiting map[string]*queued
	timer   *time.Timer // that lets the next one in; nil: nobody waits for the time
}

// queued are the calls of one trajectory that wait. A channel is closed when its call comes in.
type queued struct {
	trajectory string
	calls      []chan struct{}
}

func newGate(places int, perSecond float64) *gate {
	g := &gate{places: places, waiting: map[string]*queued{}}
	if perSecond > 0 {
		g.step = time.Duration(float64(time.Second) / perSecond)
	}
	return g
}

// enter waits for a place. Whoever came in must leave.
func (g *gate) enter(ctx context.Context, trajectory string) error {
	in := make(chan struct{})
	g.mu.Lock()
	q := g.waiting[trajectory]
	if q == nil {
		q = &queued{trajectory: trajectory}
		g.waiting[trajectory], g.queue = q, append(g.queue, q)
	}
	q.calls = append(q.calls, in)
	g.admit()
	g.mu.Unlock()
	select {
	case <-in:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := slices.Index(q.calls, in); at >= 0 {
		q.calls = slices.Delete(q.calls, at, at+1)
		if len(q.calls) == 0 {
			g.forget(q)
		}
	} else { // it came in at this moment
		g.inside--
	}
	g.admit()
	return ctx.Err()
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// admit lets in whoever may come in now. The lock is held.
func (g *gate) admit() {
	for len(g.queue) > 0 && (g.places == 0 || g.inside < g.places) {
		if g.step > 0 {
			now := time.Now()
			if g.next.After(now) {
				g.wake(g.next.Sub(now))
				return
			}
			g.next = now.Add(g.step)
		}
		q := g.queue[0]
		g.queue = g.queue[1:]
		close(q.calls[0])
		g.inside++
		if q.calls = q.calls[1:]; len(q.calls) > 0 {
			g.queue = append(g.queue, q)
		} else {
			delete(g.waiting, q.trajectory)
		}
	}
	if len(g.queue) == 0 && g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

// wake admits later. The lock is held.
func (g *gate) wake(in time.Duration) {
	if g.timer != nil {
		return
	}
	g.timer = time.AfterFunc(in, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.timer = nil
		g.admit()
	})
}

// forget takes a trajectory out of the queue. The lock is held.
func (g *gate) forget(q *queued) {
	delete(g.waiting, q.trajectory)
	if at := slices.Index(g.queue, q); at >= 0 {
		g.queue = slices.Delete(g.queue, at, at+1)
	}
}
