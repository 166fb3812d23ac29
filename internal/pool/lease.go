package pool

import (
	"sync/atomic"
	"time"
)

// Lease is a member in the hands of one holder, until one of Return, Break, silence or the pool's Close ends it; what comes later does nothing.
type Lease struct {
	pool    *Pool
	member  *member
	owner   Owner
	since   time.Time
	touched atomic.Int64 // nanoseconds since since
	done    chan struct{}

	// Under the pool's mutex.
	timer *time.Timer // nil: the lease has no deadline
	at    int         // in pool.lent
	over  bool
}

// Member is what was lent. It must not be used once Done is closed.
func (l *Lease) Member() Member { return l.member.Member }

// Touch says that the holder lives: the lease's deadline begins anew.
func (l *Lease) Touch() { l.touched.Store(int64(time.Since(l.since))) }

// Done is closed when the lease ended, by whomever.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Return gives the member back, which may be lent again.
func (l *Lease) Return() {
	p := l.pool
	p.mu.Lock()
	defer p.unlock()
	if !p.end(l) {
		return
	}
	p.held.Add(time.Since(l.since))
	if p.breaker.completed() {
		p.note("its members hold again")
	}
	l.member.uses++
	p.keep(l.member)
	p.dispatch()
}

// Break gives back a member that does not work any more: it is closed, and another one is made when one is needed.
func (l *Lease) Break(why error) {
	p := l.pool
	p.mu.Lock()
	defer p.unlock()
	if !p.end(l) {
		return
	}
	now := time.Now()
	p.held.Add(now.Sub(l.since))
	p.broken++
	p.retire(l.member)
	if l.member.uses == 0 && p.breaker.brokeFirst(why, now, p.tick) {
		p.note("%v", p.breaker.err("", now))
	}
	p.dispatch()
}

// Discard gives back a member that works but is in a state that nobody knows, because its holder went away in the middle of something: it is closed
// and counts as replaced. Unlike Break it says nothing against the pool's members, so that it does not open the breaker.
func (l *Lease) Discard() {
	p := l.pool
	p.mu.Lock()
	defer p.unlock()
	if !p.end(l) {
		return
	}
	p.held.Add(time.Since(l.since))
	p.replaced++
	p.retire(l.member)
	p.dispatch()
}

// silent ends a lease that nobody touched for its whole time. The member is closed: its holder may still use it.
func (l *Lease) silent() {
	p := l.pool
	p.mu.Lock()
	defer p.unlock()
	if l.over {
		return
	}
	quiet := time.Since(l.since) - time.Duration(l.touched.Load())
	if quiet < p.o.Lease {
		l.timer.Reset(p.o.Lease - quiet)
		return
	}
	p.end(l)
	p.ended++
	p.note("the lease of %s ended, for its holder was silent for %s; its member is closed", l.owner, quiet.Round(time.Millisecond))
	p.retire(l.member)
	p.dispatch()
}
