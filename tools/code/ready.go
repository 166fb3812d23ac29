package code

import (
	"context"
	"errors"
	"sync"
)

// ready keeps one started process ahead for the calls of a trajectory.
type ready[T interface {
	comparable
	kill()
}] struct {
	start func(ctx context.Context) (T, error)

	mu      sync.Mutex
	next    T
	unused  bool // next was started ahead, and no call used it
	running map[T]bool
	closed  bool
	all     sync.WaitGroup // of drop
}

func newReady[T interface {
	comparable
	kill()
}](start func(ctx context.Context) (T, error)) *ready[T] {
	return &ready[T]{start: start, running: map[T]bool{}}
}

var errOver = errors.New("the trajectory is over")

// take is the process that was kept ahead, else a new one. It is the caller's to give back or to drop.
func (r *ready[T]) take(ctx context.Context) (T, error) {
	var none T
	r.mu.Lock()
	p, closed := r.next, r.closed
	r.next = none
	r.mu.Unlock()
	if closed {
		return none, errOver
	}
	if p != none {
		return p, nil
	}
	p, err := r.start(ctx)
	if err != nil {
		return none, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		p.kill()
		return none, errOver
	}
	r.running[p] = true
	return p, nil
}

// give keeps a process for the next call. It holds what earlier calls left: one that was started ahead meanwhile makes way.
func (r *ready[T]) give(p T) {
	var none T
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.end(p)
		return
	}
	if r.next != none {
		r.end(r.next)
	}
	r.next, r.unused = p, false
}

// end ends a process that nobody uses. r.mu is held.
func (r *ready[T]) end(p T) {
	p.kill()
	delete(r.running, p)
}

// drop ends a process and starts another for the next call, and waits for neither.
func (r *ready[T]) drop(p T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // which ends what is running
		return
	}
	r.all.Go(func() {
		p.kill()
		r.mu.Lock()
		delete(r.running, p)
		closed := r.closed
		r.mu.Unlock()
		if !closed {
			_ = r.fill(context.Background())
		}
	})
}

// fill starts the process for the next call. It takes the place of one that was started ahead before: that one may have ended, where the call since then
// filled the workspace. One that a call used stays.
func (r *ready[T]) fill(ctx context.Context) error {
	p, err := r.start(ctx)
	if err != nil {
		return err // the next call starts one, and says why it cannot
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var none T
	r.running[p] = true
	if r.closed || r.next != none && !r.unused {
		r.end(p)
		return nil
	}
	if r.next != none {
		r.end(r.next)
	}
	r.next, r.unused = p, true
	return nil
}

// Close ends all processes, those of running calls too.
func (r *ready[T]) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.running {
		p.kill()
	}
	return nil
}
