package pool

import "time"

// Discard gives back a member that works but is in a state that nobody knows, because its holder went away in the middle of something: it is closed
// and counts as replaced. Unlike Break it says nothing against the pool's members, so that it does not open the breaker.
func (l *Lease) Discard() {
	p := l.pool
	p.mu.Lock()
	defer p.unlock()
	if !p.end(l) {
		return
	}
	p.held.add(time.Since(l.since))
	p.replaced++
	p.retire(l.member)
	p.dispatch()
}
