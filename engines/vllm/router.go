package vllm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/watchdog"
)

// router takes requests to replicas, and from one to another until they are answered.
type router struct {
	options Options
	fleet   *fleet
	life    *life
	places  chan struct{} // one for each request in flight
	waiting atomic.Int64  // requests that have none
}

// attempts does something on one replica after another until it succeeds, cannot succeed, or the time is over.
func (rt *router) attempts(ctx context.Context, session string, do func(context.Context, *replica) error) error {
	if err := rt.life.enter(); err != nil {
		return err
	}
	defer rt.life.running.Done()
	var last error
	var avoid *replica
	backoff := retry.Backoff{First: rt.options.Backoff, Most: 5 * time.Second}
	left := 0 // attempts that another request's failure ended: they say nothing of this one
	for n := 0; n < rt.options.Attempts+left; n++ {
		if n > 0 {
			if err := rt.backOff(ctx, pauseAfter(last, backoff.Wait(n))); err != nil {
				return rt.life.orClosed(fmt.Errorf("%w after %d attempts; the last: %w", err, n, last))
			}
		}
		if err := rt.place(ctx); err != nil {
			return rt.life.orClosed(since(last, err))
		}
		var r *replica
		done := make(chan error)
		go func() { // net/http wants 16 KB of stack, which every trajectory would keep between its requests
			var err error
			r, err = rt.attempt(ctx, session, avoid, do)
			done <- err
		}()
		err := <-done
		<-rt.places
		switch {
		case err == nil:
			return nil
		case r == nil:
			return rt.life.orClosed(since(last, err))
		case ctx.Err() != nil || rt.life.ctx.Err() != nil:
			return rt.life.orClosed(since(last, fmt.Errorf("%s: %w", r.url, ctx.Err())))
		}
		if errors.Is(err, engines.ErrForeign) {
			rt.fleet.lose(r, err)
			return rt.fleet.isLost()
		}
		last, avoid = fmt.Errorf("%s: %w", r.url, err), r
		if errors.Is(err, errLeft) && left < mostLeft {
			left++
		}
		if !passing(err) {
			return last
		}
		if lost(err) {
			r.standing.fail(down, err)
		}
	}
	return fmt.Errorf("%d attempts failed; the last: %w", rt.options.Attempts+left, last)
}

// since names the last attempt, if there was one, beside what ended them all.
func since(last, err error) error {
	if last != nil {
		return fmt.Errorf("%w; the last attempt: %w", err, last)
	}
	return err
}

// place waits for a place among the requests in flight. Places go to who waits longest, so that no task starves beside one
// with many trajectories; what waits holds nothing but its prompt.
func (rt *router) place(ctx context.Context) error {
	select {
	case rt.places <- struct{}{}: // free, so nobody waits
		return nil
	default:
	}
	rt.waiting.Add(1)
	defer rt.waiting.Add(-1)
	select {
	case rt.places <- struct{}{}: // a channel serves its senders in their order
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-rt.life.ctx.Done():
		return engines.ErrClosed
	}
}

// attempt does something on one replica; nil: none serves.
func (rt *router) attempt(ctx context.Context, session string, avoid *replica, do func(context.Context, *replica) error) (*replica, error) {
	ctx, cancel := rt.life.untilClosed(ctx)
	defer cancel()
	r, err := rt.pick(ctx, session, avoid)
	if err != nil {
		return nil, err
	}
	defer rt.fleet.release(r)
	watchdog.Move(ctx, r.part)
	return r, do(ctx, r)
}

// mostLeft bounds how often a request follows a server that comes and goes.
const mostLeft = 100

// pauseAfter is how long to wait after a failed attempt.
func pauseAfter(err error, backoff time.Duration) time.Duration {
	var status *statusError
	switch {
	case errors.As(err, &status) && status.RetryAfter > 0:
		return status.RetryAfter
	case errors.Is(err, errLeft) || errors.Is(err, errMixed):
		return 0
	}
	return backoff
}

// backOff is a pause that Close ends.
func (rt *router) backOff(ctx context.Context, d time.Duration) error {
	ctx, cancel := rt.life.untilClosed(ctx)
	defer cancel()
	return retry.Pause(ctx, d)
}

// passing tells whether another attempt may succeed.
func passing(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.Status >= 500 && status.Status != http.StatusNotImplemented ||
			slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, status.Status)
	}
	return true
}

// lost tells whether the connection failed, so that nobody else should try the server until it is looked at. A deadline is
// no such thing: one request may hang where others do not. Nor is what fails on this side, such as a write to shared memory, whose error numbers
// are of the type net.Error too, or a weights file that ends too soon: all that is of a connection is a url.Error or, of a dial, a net.OpError.
func lost(err error) bool {
	var request *url.Error
	var network *net.OpError
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.As(err, &request) || errors.As(err, &network)
}

// pick takes a place on the replica of the session, or else on the least loaded one, and waits while none serves. avoid
// is taken only if no other serves.
func (rt *router) pick(ctx context.Context, session string, avoid *replica) (*replica, error) {
	waiting := time.Duration(0)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := rt.fleet.isLost(); err != nil {
			return nil, err
		}
		changes := rt.fleet.changes() // before looking, so that no change is missed
		if r := rt.fleet.choose(session, avoid); r != nil {
			return r, nil
		}
		if failed := rt.fleet.want().failed; failed != nil {
			return nil, fmt.Errorf("no replica serves since an update failed: %w", failed)
		}
		if gone := rt.options.Gone(); gone != nil && rt.fleet.allDown() {
			return nil, fmt.Errorf("no replica serves: %w", gone)
		}
		if waiting >= rt.options.Patience {
			return nil, fmt.Errorf("no replica serves: %s", rt.fleet.reasons())
		}
		start := time.Now()
		wait(ctx, changes, min(time.Second, rt.options.Patience))
		if !rt.fleet.busy() { // an update has deadlines of its own, and training lasts as long as it lasts
			waiting += time.Since(start)
		}
	}
}
