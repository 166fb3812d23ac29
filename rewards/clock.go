package rewards

import (
	"context"
	"sync"
	"time"
)

// clock is a context with a deadline that stands still while a reward waits for its turn, and while it runs programs under limits of their
// own: how long that takes depends on what else the machine does.
type clock struct {
	context.Context // of the caller

	mu     sync.Mutex
	left   time.Duration // when it last stood still
	ends   time.Time
	timer  *time.Timer
	still  int // who has stopped it
	err    error
	done   chan struct{}
	forget func() bool
}

type clockKey struct{}

// newClock starts a clock; stop ends it and must be called.
func newClock(ctx context.Context, timeout time.Duration) (c *clock, stop func()) {
	c = &clock{Context: ctx, left: timeout, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget = context.AfterFunc(ctx, func() { c.end(ctx.Err()) })
	c.run()
	return c, func() {
		c.end(context.Canceled)
		c.forget()
	}
}

// run lets the time pass. The mutex is held.
func (c *clock) run() {
	c.ends = time.Now().Add(c.left)
	c.timer = time.AfterFunc(c.left, func() {
		c.mu.Lock()
		late := c.still == 0 && !time.Now().Before(c.ends) // it may have been stopped at this moment
		c.mu.Unlock()
		if late {
			c.end(context.DeadlineExceeded)
		}
	})
}

func (c *clock) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.timer.Stop()
		close(c.done)
	}
}

// offTheClock stops the clock of a reward until on is called. A context without one has none to stop.
func offTheClock(ctx context.Context) (on func()) {
	c, ok := ctx.Value(clockKey{}).(*clock)
	if !ok {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still++; c.still == 1 {
		c.timer.Stop()
		c.left = time.Until(c.ends)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.still--; c.still == 0 && c.err == nil {
			c.run()
		}
	})
}

func (c *clock) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	above, has := c.Context.Deadline()
	if c.still > 0 || has && above.Before(c.ends) {
		return above, has
	}
	return c.ends, true
}

func (c *clock) Done() <-chan struct{} { return c.done }

func (c *clock) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *clock) Value(key any) any {
	if key == (clockKey{}) {
		return c
	}
	return c.Context.Value(key)
}
