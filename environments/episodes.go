package environments

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// episodes are those of now, and the calls of their environments.
type episodes struct {
	linger time.Duration  // in which an episode whose context is done can still be asked for its state or score
	left   sync.WaitGroup // calls of environments, those that were left behind included

	mu     sync.Mutex
	all    map[*tenure]struct{}
	closed bool
}

// enter adds an episode, which ends some time after ctx is done.
func (l *episodes) enter(ctx context.Context, t *tenure) error {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.all[t] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		return errors.New("the environments are closed")
	}
	t.follow(ctx)
	return nil
}

// leave takes an episode out.
func (l *episodes) leave(t *tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, t)
}

// now are the episodes of now.
func (l *episodes) now() []*tenure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.all))
}

// close lets no further episode in, and returns those of now; false: it was closed before.
func (l *episodes) close() ([]*tenure, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	l.closed = true
	return slices.Collect(maps.Keys(l.all)), true
}

// beat keeps the leases of all episodes alive whose context is not done, until stop is closed.
func (l *episodes) beat(every time.Duration, stop <-chan struct{}) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		for _, e := range l.now() {
			if e.alive() {
				e.touch()
			}
		}
	}
}
