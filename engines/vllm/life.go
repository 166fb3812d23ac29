package vllm

import (
	"context"
	"sync"

	"github.com/agentfly/agentfly/engines"
)

// life is the time between New and Close, and what runs in it.
type life struct {
	ctx    context.Context // ends at close
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // requests, updates and the health loops
}

func newLife() *life {
	l := &life{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// enter counts a request or an update, unless the engine is closed.
func (l *life) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return engines.ErrClosed
	}
	l.running.Add(1)
	return nil
}

// untilClosed is ctx, which Close ends as well.
func (l *life) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (l *life) orClosed(err error) error {
	if err != nil && l.ctx.Err() != nil {
		return engines.ErrClosed
	}
	return err
}

// close ends it, and waits for what runs.
func (l *life) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.running.Wait()
}
