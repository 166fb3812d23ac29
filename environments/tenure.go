package environments

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/pool"
)

// tenure is the time in which an episode has its environment: one call of it at a time, until it ends or fails. It is safe for concurrent use.
type tenure struct {
	rules    *rules
	episodes *episodes
	mem      *member
	lease    *pool.Lease // nil: a fork, which no pool knows

	turn chan struct{} // holds a token while the environment is asked something

	mu        sync.Mutex
	ended     bool
	failed    error                   // the first failure of the environment
	interrupt context.CancelCauseFunc // of what the environment is asked now; nil: nothing
	unfollow  func()
	silent    bool // the context of Begin is done
}

func newTenure(r *rules, l *episodes, mem *member, lease *pool.Lease) *tenure {
	return &tenure{rules: r, episodes: l, mem: mem, lease: lease, turn: make(chan struct{}, 1), unfollow: func() {}}
}

// follow ends the episode some time after ctx is done.
func (e *tenure) follow(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(e.episodes.linger, e.end)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.silent, e.unfollow = true, func() { t.Stop() }
		if e.ended {
			t.Stop()
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.silent {
		e.unfollow = func() { stop() }
	}
}

// alive tells whether the context of Begin still lives.
func (e *tenure) alive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.silent && !e.ended
}

// touch keeps the lease alive, where nothing else does: while the context of Begin lives, the manager does.
func (e *tenure) touch() {
	if e.lease != nil {
		e.lease.Touch()
	}
}

// end gives the environment back, once: it is closed instead where it failed or is in the middle of a call, which returns then. It is safe to call
// again, from any goroutine, and from a deferred call after a panic.
func (e *tenure) end() {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return
	}
	e.ended = true
	why := e.failed
	if e.interrupt != nil {
		why = cmp.Or(why, errEnded)
		e.interrupt(errEnded)
	}
	unfollow := e.unfollow
	e.mu.Unlock()
	unfollow()
	e.episodes.leave(e)
	e.release(why)
}

// release ends the lease. Where why is nil or the fault of a task, the environment may be used again. The pool closes what may not in the background: it waits for the call
// that still runs.
func (e *tenure) release(why error) {
	f := new(Failure)
	switch {
	case e.lease == nil:
		e.episodes.left.Add(1)
		go func() { defer e.episodes.left.Done(); _ = e.mem.Close() }()
	case why == nil || errors.As(why, &f) && f.task:
		e.lease.Return()
	case errors.Is(why, errEnded) || errors.As(why, &f) && f.givenUp:
		e.lease.Discard()
	default:
		e.lease.Break(why)
	}
}

// enter begins a call, after the one that runs. ctx of it is done when the episode ends. Its caller must leave.
func (e *tenure) enter(ctx context.Context, what string) (context.Context, error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, e.rules.fail(ctx, what, causeOf(ctx))
	}
	if e.lease != nil {
		select {
		case <-e.lease.Done():
			e.lost()
		default:
			e.lease.Touch()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.failed
	if e.ended {
		err = cmp.Or(err, errOver)
	}
	if err != nil {
		<-e.turn
		if known := new(Failure); errors.As(err, &known) {
			return nil, known
		}
		return nil, e.rules.fail(ctx, what, err)
	}
	ctx, e.interrupt = context.WithCancelCause(ctx)
	return ctx, nil
}

// leave ends a call.
func (e *tenure) leave() {
	e.mu.Lock()
	e.interrupt(errEnded)
	e.interrupt = nil
	e.mu.Unlock()
	<-e.turn
}

// lost notes that the lease ended without end: nobody kept it alive, or the pool was closed.
func (e *tenure) lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil && !e.ended {
		e.failed = e.rules.fail(context.Background(), AskedLease, errors.New("the lease ended, because nobody kept it alive or the environments were closed; the episode cannot go on"))
	}
}

// broken makes the failure of a call, after which the environment is closed.
func (e *tenure) broken(ctx context.Context, what string, err error) error {
	f := e.rules.fail(ctx, what, err)
	e.mu.Lock()
	if e.failed == nil {
		e.failed = f
	}
	ended := e.ended
	e.mu.Unlock()
	if !ended && e.lease != nil { // at once, so that it is replaced while the trajectory is brought to its end
		e.release(f)
	}
	return f
}

// power asks the environment something under a deadline, and breaks it where that fails. ctx is the caller's, inner that of enter.
func power[T any](ctx, inner context.Context, e *tenure, limit time.Duration, what string, f func(ctx context.Context) (T, error)) (T, error) {
	v, err := ask(inner, e.mem, limit, what, f)
	if err != nil {
		return v, e.broken(ctx, what, err)
	}
	return v, nil
}
