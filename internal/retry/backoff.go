package retry

import (
	"context"
	"time"
)

// Backoff are the waits between attempts at one thing: First after the first failure, twice the wait before after each further
// one, up to Most.
type Backoff struct{ First, Most time.Duration }

// Wait is how long to wait after so many failures in a row, of which there is one at least.
func (b Backoff) Wait(failures int) time.Duration {
	d := b.First
	for n := 1; n < failures; n++ {
		if d = min(2*d, b.Most); d == b.Most {
			break
		}
	}
	return d
}

// Attempts repeats something that may fail for a while.
type Attempts struct {
	Most    int // in all, 1 or more
	Backoff Backoff
	Sleep   func(ctx context.Context, d time.Duration) error // nil: Sleep
}

// Do calls attempt until it succeeds, its failure is final, ctx has ended or there were Most of them. after is how long the other side
// wants to be left alone, 0 for no such wish: the wait is no shorter. n is how often it was called, err how the last call
// failed, and ended why a wait for the next one ended early; nil: it did not.
func (a Attempts) Do(ctx context.Context, attempt func() (after time.Duration, final bool, err error)) (n int, err, ended error) {
	sleep := a.Sleep
	if sleep == nil {
		sleep = Sleep
	}
	for n = 1; ; n++ {
		after, final, err := attempt()
		if err == nil || final || ctx.Err() != nil || n >= a.Most {
			return n, err, nil
		}
		if ended := sleep(ctx, max(a.Backoff.Wait(n), after)); ended != nil {
			return n, err, ended
		}
	}
}

// Pause is Sleep for a wait that something is tried after: where the deadline of ctx would end it, it does not begin.
func Pause(ctx context.Context, d time.Duration) error {
	if !fits(ctx, d) {
		return context.DeadlineExceeded
	}
	return Sleep(ctx, d)
}
