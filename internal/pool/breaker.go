package pool

import (
	"errors"
	"fmt"
	"time"
)

// most is the number of times that Options.Cool is doubled: 32 times as long.
const most = 5

// OpenError is what Acquire says when nothing is alive and the breaker is open.
type OpenError struct {
	Pool  string
	Row   int           // failures in a row
	Retry time.Duration // from then on one more is made
	Last  error         // the last failure
}

func (e *OpenError) Error() string {
	text := fmt.Sprintf("%d members in a row could not be made or broke at once; the next is tried in %s; the last failure: %v", e.Row, e.Retry.Round(time.Millisecond), e.Last)
	if e.Pool != "" {
		text = "pool " + e.Pool + ": " + text
	}
	return text
}

func (e *OpenError) Unwrap() error { return e.Last }

// breaker counts failures in a row. Closed, it is out of the way. Open, it refuses until its time is over; then one make at a time is tried, and the
// next failure opens it again for twice as long. A member that was made but breaks in its first lease is as bad as one that was not made. It has a
// row of its own, which ends with the first lease that is given back and not with the next make. Its user holds a mutex.
type breaker struct {
	limit  int
	cool   time.Duration
	failed int // makes in a row that failed
	broken int // members in a row that broke in their first lease
	last   error
	open   bool
	until  time.Time
	trips  int // times that it opened since all was well
	timer  *time.Timer
}

// fail counts a make that failed. Like brokeFirst it tells whether the user should know: all was well before. tick is called when the time is over.
func (b *breaker) fail(err error, now time.Time, tick func()) bool {
	b.failed++
	return b.trip(err, b.failed, now, tick)
}

// brokeFirst counts a member that broke in its first lease.
func (b *breaker) brokeFirst(why error, now time.Time, tick func()) bool {
	if why == nil {
		why = errors.New("it broke in its first lease")
	}
	b.broken++
	return b.trip(why, b.broken, now, tick)
}

// trip opens the breaker where the row is long enough. What was begun before it opened does not open it once more.
func (b *breaker) trip(err error, row int, now time.Time, tick func()) bool {
	b.last = err
	if row < b.limit || b.refuses(now) {
		return false
	}
	b.open = true
	wait := b.cool << min(b.trips, most)
	b.until = now.Add(wait)
	b.trips++
	b.stop()
	b.timer = time.AfterFunc(wait, tick)
	return b.trips == 1
}

// works is told that a make succeeded. Like completed it tells whether the user should know: all is well again.
func (b *breaker) works() bool {
	b.failed = 0
	return b.calm()
}

// completed is told that a lease was given back well.
func (b *breaker) completed() bool {
	b.broken = 0
	return b.calm()
}

// calm closes the breaker where neither row is long enough, and forgets that it was open where there is no row.
func (b *breaker) calm() bool {
	if b.trips == 0 || max(b.failed, b.broken) >= b.limit {
		return false
	}
	b.open = false
	b.stop()
	if b.failed+b.broken > 0 {
		return false
	}
	b.trips = 0
	return true
}

// refuses tells whether nothing may be made.
func (b *breaker) refuses(now time.Time) bool { return b.open && now.Before(b.until) }

func (b *breaker) err(pool string, now time.Time) error {
	return &OpenError{Pool: pool, Row: max(b.failed, b.broken), Retry: b.until.Sub(now), Last: b.last}
}

func (b *breaker) stop() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}
