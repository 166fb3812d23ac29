package pool

import (
	"container/list"
	"slices"
	"time"
)

// gather is how long the first acquisition of a group waits for the others.
const gather = time.Millisecond

// waiter is one acquisition that waits.
type waiter struct {
	owner Owner
	since time.Time
	unit  *unit        // in which it waits; nil: it does not wait any more, and got has what it got
	got   chan granted // one
}

// granted is the end of an acquisition.
type granted struct {
	lease *Lease
	err   error
}

// unit is what the queue serves at once: one acquisition, or those of a group.
type unit struct {
	waiters []*waiter // in their order, one to queue.limit
	ripe    time.Time // from then on it is served
	timer   *time.Timer
	at      *list.Element
}

// queue holds the units in their order. Its user holds a mutex.
type queue struct {
	limit   int // of a unit
	units   list.List
	groups  map[string]*unit // the unit of a group that others of it join
	waiting int
}

func newQueue(limit int) queue { return queue{limit: limit, groups: map[string]*unit{}} }

// add puts a waiter into the unit of its group, or into a new one at the end. tick is called when a unit is ripe that was not when it was added.
func (q *queue) add(w *waiter, tick func()) {
	q.waiting++
	u := q.groups[w.owner.Group]
	if u == nil || len(u.waiters) == q.limit {
		u = &unit{ripe: w.since}
		u.at = q.units.PushBack(u)
		if w.owner.Group != "" {
			q.groups[w.owner.Group] = u
			if q.limit > 1 {
				u.ripe = w.since.Add(gather)
				u.timer = time.AfterFunc(time.Until(u.ripe), tick)
			}
		}
	}
	u.waiters = append(u.waiters, w)
	w.unit = u
	if u.timer != nil && len(u.waiters) == q.limit {
		u.timer.Stop()
		u.ripe = w.since
	}
}

// head is the unit whose turn it is; nil: there is none, or it still gathers.
func (q *queue) head(now time.Time) *unit {
	e := q.units.Front()
	if e == nil {
		return nil
	}
	u := e.Value.(*unit)
	if now.Before(u.ripe) {
		return nil
	}
	return u
}

// take takes the first n waiters out of a unit. Nobody joins what remains.
func (q *queue) take(u *unit, n int) []*waiter {
	taken := u.waiters[:n:n]
	u.waiters = u.waiters[n:]
	q.waiting -= n
	if g := taken[0].owner.Group; q.groups[g] == u {
		delete(q.groups, g)
	}
	q.drop(u)
	for _, w := range taken {
		w.unit = nil
	}
	return taken
}

// remove takes out a waiter that waits no longer.
func (q *queue) remove(w *waiter) {
	u := w.unit
	w.unit = nil
	q.waiting--
	u.waiters = slices.DeleteFunc(u.waiters, func(one *waiter) bool { return one == w })
	if g := w.owner.Group; len(u.waiters) == 0 && q.groups[g] == u {
		delete(q.groups, g)
	}
	q.drop(u)
}

// drop removes a unit that has become empty.
func (q *queue) drop(u *unit) {
	if len(u.waiters) > 0 {
		return
	}
	q.units.Remove(u.at)
	if u.timer != nil {
		u.timer.Stop()
	}
}

// clear takes out all waiters, in their order.
func (q *queue) clear() (all []*waiter) {
	for q.waiting > 0 {
		u := q.units.Front().Value.(*unit)
		all = append(all, q.take(u, len(u.waiters))...)
	}
	return all
}
