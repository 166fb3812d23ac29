// Package pool keeps members that are costly to make (environments, interpreters, sandboxes) and lends them out: [Pool.Acquire] waits for one in a
// fair queue and gives a [Lease], which ends by itself when its holder goes silent. It makes members ahead, tries them, replaces what is broken, old
// or big, and counts all of it. A [Set] holds the pools of a job.
//
// The queue is first come, first served, over units: an acquisition without a group, or up to Options.Size acquisitions of one group that wait at the
// same time. The members of a unit come all at once. Only the unit at the head is served; those behind it wait even where less would do for them, so
// that no group starves behind small ones. A group's unit gathers for a millisecond from its first acquisition, and goes on gathering until it is
// served; whoever comes later, or finds it full, stands in a new unit at the end of the queue, so that no group starves the others. A member that is
// ready is lent to the head at once; the one that was given back last goes first, because it is the warmest.
//
// The circuit breaker opens when Options.Breaker makes fail in a row, or when as many members in a row break in their first lease. What is alive is
// lent further while it is open; where nothing is, Acquire fails at once with an [OpenError].
//
// All methods are safe for concurrent use. A pool's goroutines (each makes, tries, cleans or closes one member) end with Close. It does not know what
// a member does.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/panics"
)

// Member is what a pool lends. Close is called once, when no lease holds the member; a holder that went silent, or that still holds it when the pool
// is closed, may be in the middle of another method, which Close makes return. A member that is being closed keeps its place until Close returns.
type Member interface{ Close() error }

// Cleaner is a member that is made ready for its next lease when one is given back. Its error closes the member.
type Cleaner interface {
	Clean(ctx context.Context) error
}

// Checker is a member that can say whether it still works. It is asked before a lease of a member that waited longer than Options.CheckAfter; an
// error closes the member, and another one is lent.
type Checker interface {
	Check(ctx context.Context) error
}

// Sizer is a member that knows how much memory it holds, in bytes. It is asked when a lease is given back.
type Sizer interface{ Memory() int64 }

// Options bound a pool. A zero field is the default that stands beside it.
type Options struct {
	Name       string                                    // in errors and in Stats
	Make       func(ctx context.Context) (Member, error) // makes a member; it may be called several times at once. ctx ends when it returns
	Size       int                                       // members at once, those that are lent, made or closed included; 1
	Warm       int                                       // members that are kept ready beside those that are lent, from the start on; 0
	Starting   int                                       // calls of Make at once; 4
	MakeTime   time.Duration                             // for one Make, Clean or Check, which return when their ctx is done; a minute
	Lease      time.Duration                             // after which a lease ends that nobody used or kept alive; 0: never
	Age        time.Duration                             // of a member, after which it is closed instead of lent again; 0: any
	Uses       int                                       // leases of a member, after which it is closed; 0: any number
	Memory     int64                                     // bytes of a Sizer, beyond which it is closed instead of lent again; 0: any
	CheckAfter time.Duration                             // 10 s
	Breaker    int                                       // makes that fail in a row, or members that break in their first lease, until Acquire fails at once; 5
	Cool       time.Duration                             // after which a broken pool tries one Make again; it doubles up to 32 times; 1 s
	Note       func(text string)                         // told what a user should know: the breaker opened, a lease ended by silence; nil: nobody. It may be called several times at once
}

// Owner says who holds a lease, for the queue and for people. Who waits for a second member of a pool while it holds one may wait for itself.
type Owner struct {
	Group string // acquisitions with one Group that wait together get their members at once or not yet; "": alone
	Name  string // the trajectory
}

// String names an owner in messages.
func (o Owner) String() string {
	switch {
	case o.Name == "" && o.Group == "":
		return "nobody"
	case o.Group == "":
		return o.Name
	case o.Name == "":
		return "group " + o.Group
	}
	return o.Name + " of group " + o.Group
}

// Stats are a pool's numbers. Durations are over all so far, within 4%.
type Stats struct {
	Name                                  string
	Size, Ready, Lent, Starting, Waiting  int
	Made, Failed, Replaced, Broken, Ended int64 // members made; makes that failed; members closed by age, uses, memory or check; closed as broken; leases that ended by silence
	Leases                                int64
	WaitP50, WaitP99                      time.Duration // from Acquire to the lease
	HeldP50, HeldP99                      time.Duration // of leases that were given back
	Open                                  bool          // the breaker is open
	Holders                               []Holder      // of now, the longest first
	Waiters                               []Holder      // who waits now, in the order in which they are served

	waits, held Durations
}

// Since are the numbers between two moments of a pool: counts and durations of what happened after before, the rest as it is now.
func (s Stats) Since(before Stats) Stats {
	s.Made, s.Failed, s.Replaced = s.Made-before.Made, s.Failed-before.Failed, s.Replaced-before.Replaced
	s.Broken, s.Ended, s.Leases = s.Broken-before.Broken, s.Ended-before.Ended, s.Leases-before.Leases
	s.waits, s.held = s.waits.Since(before.waits), s.held.Since(before.held)
	s.quantiles()
	return s
}

func (s *Stats) quantiles() {
	s.WaitP50, s.WaitP99, s.HeldP50, s.HeldP99 = s.waits.Quantile(0.5), s.waits.Quantile(0.99), s.held.Quantile(0.5), s.held.Quantile(0.99)
}

// Holder is a lease of now, or who waits for one.
type Holder struct {
	Owner Owner
	Since time.Time
}

// ErrClosed is what Acquire says once Close was called.
var ErrClosed = errors.New("the pool is closed")

// member is a Member in the pool's books.
type member struct {
	Member
	made, since time.Time // when it was made; when it was made, given back or tried the last time
	uses        int       // leases that were given back
	vouched     *unit     // for which it was tried
	checker     Checker   // nil where it is none, as the next two
	cleaner     Cleaner
	sizer       Sizer
}

func newMember(m Member, now time.Time) *member {
	out := &member{Member: m, made: now, since: now}
	out.checker, _ = m.(Checker)
	out.cleaner, _ = m.(Cleaner)
	out.sizer, _ = m.(Sizer)
	return out
}

var errBig = errors.New("it holds too much memory")

// clean makes a member ready for its next lease. limit is of its memory, 0 for none.
func (m *member) clean(ctx context.Context, limit int64) error {
	if m.cleaner != nil {
		if err := m.cleaner.Clean(ctx); err != nil {
			return err
		}
	}
	if m.sizer != nil && limit > 0 && m.sizer.Memory() > limit {
		return errBig
	}
	return nil
}

// Pool lends members. Make one with New.
type Pool struct {
	o      Options
	ctx    context.Context // of Make, Clean and Check
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines

	mu      sync.Mutex
	queue   queue
	breaker breaker
	ready   []*member // the last is lent first
	lent    []*Lease
	// The places of Options.Size that are taken: members that are ready or lent, and these.
	starting, busy, closing int // busy: cleaned or checked
	made, failed, replaced  int64
	broken, ended, leases   int64
	waits, held             Durations
	closed                  bool
	closeErr                error // the first of a member's Close
	closeErrs               int
	notes                   []string // said when the mutex is given up
}

// New returns a pool, which begins to make what Options.Warm asks for.
func New(o Options) (*Pool, error) {
	o.Size, o.Starting, o.Breaker = cmp.Or(o.Size, 1), cmp.Or(o.Starting, 4), cmp.Or(o.Breaker, 5)
	o.MakeTime, o.CheckAfter, o.Cool = cmp.Or(o.MakeTime, time.Minute), cmp.Or(o.CheckAfter, 10*time.Second), cmp.Or(o.Cool, time.Second)
	switch {
	case o.Name == "" || o.Make == nil:
		return nil, errors.New("pool: Name or Make is missing")
	case min(o.Size, o.Starting, o.Breaker) < 1 || min(o.Warm, o.Uses) < 0 || o.Memory < 0 || min(o.MakeTime, o.CheckAfter, o.Cool, o.Lease, o.Age) < 0:
		return nil, fmt.Errorf("pool %s: no number or time of its options may be below 0; leave out what should be the default", o.Name)
	case o.Warm > o.Size:
		return nil, fmt.Errorf("pool %s: a warm minimum of %d is more than its size %d", o.Name, o.Warm, o.Size)
	}
	p := &Pool{o: o, queue: newQueue(o.Size), breaker: breaker{limit: o.Breaker, cool: o.Cool}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.unlock()
	p.dispatch()
	return p, nil
}

// Name is that of the options.
func (p *Pool) Name() string { return p.o.Name }

// Acquire waits for a member. It fails when ctx is done, when the pool is closed ([ErrClosed]), and when the breaker is open and nothing is alive
// (an [*OpenError], which names the last failure). Every lease it returns must be ended, by Return or Break.
func (p *Pool) Acquire(ctx context.Context, o Owner) (*Lease, error) {
	w := &waiter{owner: o, since: time.Now(), got: make(chan granted, 1)}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pool %s: %w", p.o.Name, context.Cause(ctx))
	}
	p.mu.Lock()
	if p.closed {
		p.unlock()
		return nil, fmt.Errorf("pool %s: %w", p.o.Name, ErrClosed)
	}
	p.queue.add(w, p.tick)
	p.dispatch()
	p.unlock()
	select {
	case got := <-w.got:
		return got.lease, got.err
	case <-ctx.Done():
		return p.leave(w, context.Cause(ctx))
	}
}

// TryAcquire lends a member that is ready, where nobody waits; it waits for nothing.
func (p *Pool) TryAcquire(o Owner) (l *Lease, ok bool) {
	p.mu.Lock()
	defer p.unlock()
	w := &waiter{owner: o, since: time.Now()}
	if p.closed || p.queue.waiting > 0 || !p.vet(&unit{waiters: []*waiter{w}}, 1, w.since) {
		p.dispatch()
		return nil, false
	}
	l = p.lend(w, w.since)
	p.dispatch()
	return l, true
}

// leave takes a waiter whose ctx is done out of the queue. What it was given at the same moment goes to the next one, as it is: nobody used it.
func (p *Pool) leave(w *waiter, why error) (*Lease, error) {
	p.mu.Lock()
	defer p.unlock()
	if w.unit == nil {
		got := <-w.got
		if got.err != nil {
			return nil, got.err
		}
		if p.end(got.lease) {
			p.leases--
			p.ready = append(p.ready, got.lease.member)
		}
	} else {
		p.queue.remove(w)
	}
	p.dispatch()
	return nil, fmt.Errorf("pool %s: no member in %s, with %d of %d lent and %d waiting: %w",
		p.o.Name, time.Since(w.since).Round(time.Millisecond), len(p.lent), p.o.Size, p.queue.waiting, why)
}

// unlock gives up the mutex and says what there is to say, which may call the pool again.
func (p *Pool) unlock() {
	notes := p.notes
	p.notes = nil
	p.mu.Unlock()
	for _, text := range notes {
		if p.o.Note != nil {
			p.o.Note(text)
		}
	}
}

func (p *Pool) note(format string, a ...any) {
	p.notes = append(p.notes, fmt.Sprintf("pool %s: ", p.o.Name)+fmt.Sprintf(format, a...))
}

// tick is what timers call: a group has gathered, or the breaker's time is over.
func (p *Pool) tick() {
	p.mu.Lock()
	defer p.unlock()
	p.dispatch()
}

// dispatch lends what is ready to the head of the queue, and starts what is missing. It is called after every change. The mutex is held, as in all
// methods below but those of goroutines.
func (p *Pool) dispatch() {
	if p.closed {
		return
	}
	now := time.Now()
	for u := p.queue.head(now); u != nil; u = p.queue.head(now) {
		need := len(u.waiters)
		if p.breaker.open { // there will be no more than these: a group takes them all, and the rest of it stays in front
			need = min(need, p.living())
		}
		if need == 0 || !p.vet(u, need, now) {
			break
		}
		for _, w := range p.queue.take(u, need) {
			w.got <- granted{lease: p.lend(w, now)}
		}
	}
	if p.breaker.refuses(now) && p.living() == 0 {
		for _, w := range p.queue.clear() {
			w.got <- granted{err: p.breaker.err(p.o.Name, now)}
		}
	}
	missing := p.queue.waiting + p.o.Warm - len(p.ready) - p.starting - p.busy
	room := p.o.Starting - p.starting
	if p.breaker.refuses(now) {
		room = 0
	} else if p.breaker.open {
		room = 1 - p.starting
	}
	for range min(missing, room, p.o.Size-p.living()-p.starting-p.closing) {
		p.starting++
		p.all.Go(p.start)
	}
}

// living counts the members that are there and not being closed.
func (p *Pool) living() int { return len(p.ready) + len(p.lent) + p.busy }

// vet tells whether need members can be lent to a unit. Where so many are ready it closes those that are too old and tries those that waited
// long, also for the units behind. What was made since the unit waits is not too old for it, and what was tried for it is not tried again, however long
// it still waits: a unit waits for that once.
func (p *Pool) vet(u *unit, need int, now time.Time) bool {
	if len(p.ready) < need {
		return false
	}
	next := max(0, len(p.ready)-max(need, p.queue.waiting)) // from here on they may be lent now
	from := next
	if p.o.Age > 0 {
		from = 0
	}
	kept := p.ready[:from]
	for i, m := range p.ready[from:] {
		switch {
		case p.o.Age > 0 && now.Sub(m.made) > p.o.Age && m.made.Before(u.waiters[0].since):
			p.replaced++
			p.retire(m)
		case from+i >= next && m.checker != nil && now.Sub(m.since) > p.o.CheckAfter && m.vouched != u:
			p.ask(m, "its Check", &p.replaced, func(ctx context.Context) error {
				m.vouched = u
				return m.checker.Check(ctx)
			})
		default:
			kept = append(kept, m)
		}
	}
	clear(p.ready[len(kept):])
	p.ready = kept
	return len(kept) >= need
}

// lend lends the last of those that are ready.
func (p *Pool) lend(w *waiter, now time.Time) *Lease {
	n := len(p.ready) - 1
	m := p.ready[n]
	p.ready[n], p.ready = nil, p.ready[:n]
	m.vouched = nil
	l := &Lease{pool: p, member: m, owner: w.owner, since: now, at: len(p.lent), done: make(chan struct{})}
	p.lent = append(p.lent, l)
	if p.o.Lease > 0 {
		l.timer = time.AfterFunc(p.o.Lease, l.silent)
	}
	p.leases++
	p.waits.Add(now.Sub(w.since))
	return l
}

// end takes a lease out of the books, once. Its member is the caller's to keep or to retire.
func (p *Pool) end(l *Lease) bool {
	if l.over {
		return false
	}
	l.over = true
	last := len(p.lent) - 1
	p.lent[l.at] = p.lent[last]
	p.lent[l.at].at = l.at
	p.lent[last], p.lent = nil, p.lent[:last]
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.done)
	return true
}

// keep makes a member that was given back ready for the next lease.
func (p *Pool) keep(m *member) {
	now := time.Now()
	switch {
	case p.o.Uses > 0 && m.uses >= p.o.Uses, p.o.Age > 0 && now.Sub(m.made) > p.o.Age:
		p.replaced++
		p.retire(m)
	case m.cleaner != nil || m.sizer != nil && p.o.Memory > 0:
		p.ask(m, "its Clean", &p.broken, func(ctx context.Context) error { return m.clean(ctx, p.o.Memory) })
	default:
		m.since = now
		p.ready = append(p.ready, m)
	}
}

// ask calls f for a member, in a goroutine and with panics as errors. Without an error the member is ready again; with one it is closed and
// *counts goes up.
func (p *Pool) ask(m *member, what string, counts *int64, f func(ctx context.Context) error) {
	p.busy++
	p.all.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.o.MakeTime)
		err := panics.Guard(what, func() error { return f(ctx) })
		cancel()
		p.mu.Lock()
		defer p.unlock()
		p.busy--
		switch {
		case p.closed:
			p.retire(m)
		case err != nil:
			if errors.Is(err, errBig) {
				counts = &p.replaced
			}
			*counts++
			p.retire(m)
		default:
			m.since = time.Now()
			p.ready = append(p.ready, m)
		}
		p.dispatch()
	})
}

// retire closes a member, which nobody holds. Its place is free when that is done.
func (p *Pool) retire(m *member) {
	p.closing++
	p.all.Go(func() {
		err := panics.Guard("its Close", m.Close)
		p.mu.Lock()
		defer p.unlock()
		p.closing--
		if err != nil {
			p.closeErrs++
			p.closeErr = cmp.Or(p.closeErr, err)
		}
		p.dispatch()
	})
}

// start makes one member.
func (p *Pool) start() {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.MakeTime)
	made, err := panics.Value("its maker", func() (Member, error) { return p.o.Make(ctx) })
	cancel()
	switch {
	case err != nil:
		made = nil
	case made == nil:
		err = errors.New("its maker returned nothing")
	}
	p.mu.Lock()
	defer p.unlock()
	p.starting--
	now := time.Now()
	switch {
	case p.closed:
		if made != nil {
			p.made++
			p.retire(newMember(made, now))
		}
	case err != nil:
		p.failed++
		if p.breaker.fail(err, now, p.tick) {
			p.note("%v", p.breaker.err("", now))
		}
	default:
		p.made++
		if p.breaker.works() {
			p.note("its members can be made again")
		}
		p.ready = slices.Insert(p.ready, 0, newMember(made, now))
	}
	p.dispatch()
}

// Stats are the pool's numbers of now.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Name: p.o.Name, Size: p.o.Size, Ready: len(p.ready), Lent: len(p.lent), Starting: p.starting, Waiting: p.queue.waiting,
		Made: p.made, Failed: p.failed, Replaced: p.replaced, Broken: p.broken, Ended: p.ended, Leases: p.leases,
		Open: p.breaker.open, waits: p.waits, held: p.held,
	}
	s.quantiles()
	for _, l := range p.lent {
		s.Holders = append(s.Holders, Holder{l.owner, l.since})
	}
	slices.SortFunc(s.Holders, func(a, b Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner.Name, b.Owner.Name))
	})
	for e := p.queue.units.Front(); e != nil; e = e.Next() {
		if u, ok := e.Value.(*unit); ok {
			for _, w := range u.waiters {
				s.Waiters = append(s.Waiters, Holder{w.owner, w.since})
			}
		}
	}
	return s
}

// gone tells whether the pool is closed and all of its members are.
func (p *Pool) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed && p.starting+p.busy+p.closing == 0
}

// Close ends all leases, closes all members and waits for that; who waits in Acquire gets ErrClosed. Its error is the first that a member's Close
// had, now or earlier. It may be called several times.
func (p *Pool) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.cancel()
		p.breaker.stop()
		for _, w := range p.queue.clear() {
			w.got <- granted{err: fmt.Errorf("pool %s: %w", p.o.Name, ErrClosed)}
		}
		for len(p.lent) > 0 {
			l := p.lent[0]
			p.end(l)
			p.retire(l.member)
		}
		for _, m := range p.ready {
			p.retire(m)
		}
		p.ready = nil
	}
	p.unlock()
	p.all.Wait()
	p.mu.Lock()
	defer p.unlock()
	switch {
	case p.closeErrs > 1:
		return fmt.Errorf("pool %s: %d members did not close well, the first: %w", p.o.Name, p.closeErrs, p.closeErr)
	case p.closeErr != nil:
		return fmt.Errorf("pool %s: a member did not close well: %w", p.o.Name, p.closeErr)
	}
	return nil
}
