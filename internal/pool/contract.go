// Package pool keeps members that are costly to make (environments, interpreters, sandboxes) and lends them out: [Pool.Acquire] waits for one in a
// fair queue and gives a [Lease], which ends by itself when its holder goes silent. It makes members ahead, tries them, replaces what is broken, old
// or big, and counts all of it.
//
// It does not know what a member does.
package pool

import (
	"context"
	"time"
)

// Member is what a pool lends. Close is called once, when no lease holds the member.
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

// Sizer is a member that knows how much memory it holds, in bytes.
type Sizer interface{ Memory() int64 }

// Options bound a pool. A zero field is the default that stands beside it.
type Options struct {
	Name       string                                    // in errors and in Stats
	Make       func(ctx context.Context) (Member, error) // makes a member; it may be called several times at once
	Size       int                                       // members at once, those that are lent included; 1
	Warm       int                                       // members that are kept ready from the start on; 0
	Starting   int                                       // calls of Make at once; 4
	MakeTime   time.Duration                             // for one Make; a minute
	Lease      time.Duration                             // after which a lease ends that nobody used or kept alive; 0: never
	Age        time.Duration                             // of a member, after which it is closed instead of lent again; 0: any
	Uses       int                                       // leases of a member, after which it is closed; 0: any number
	Memory     int64                                     // bytes of a Sizer, beyond which it is closed instead of lent again; 0: any
	CheckAfter time.Duration                             // 10 s
	Breaker    int                                       // makes that fail in a row until Acquire fails at once; 5
	Cool       time.Duration                             // after which a broken pool tries one Make again; it doubles up to 32 times; 1 s
	Note       func(text string)                         // told what a user should know: the breaker opened, a lease ended by silence; nil: nobody
}

// Owner says who holds a lease, for the queue and for people.
type Owner struct {
	Group string // acquisitions with one Group that wait together get their members at once or not yet; "": alone
	Name  string // the trajectory
}

// Stats are a pool's numbers. Durations are over all so far.
type Stats struct {
	Name                                  string
	Size, Ready, Lent, Starting, Waiting  int
	Made, Failed, Replaced, Broken, Ended int64 // members made; makes that failed; members closed by age, uses, memory or check; closed as broken; leases that ended by silence
	Leases                                int64
	WaitP50, WaitP99                      time.Duration // from Acquire to the lease
	HeldP50, HeldP99                      time.Duration // of leases that were given back
	Open                                  bool          // the breaker is open
	Holders                               []Holder      // of now
}

// Holder is a lease of now.
type Holder struct {
	Owner Owner
	Since time.Time
}

// The methods, which are written against these signatures:
//
//	func New(o Options) (*Pool, error)
//	func (p *Pool) Acquire(ctx context.Context, o Owner) (*Lease, error) // waits; an error when ctx is done, the pool is closed, or the breaker is open (it names the last failure of Make)
//	func (p *Pool) Stats() Stats
//	func (p *Pool) Close() error                // waits until what is lent is closed too
//	func (l *Lease) Member() Member
//	func (l *Lease) Touch()                     // the holder lives
//	func (l *Lease) Done() <-chan struct{}      // closed when the lease ended, by whom ever
//	func (l *Lease) Return()                    // the member may be lent again; once, later calls do nothing
//	func (l *Lease) Break(why error)            // the member is closed and replaced; once, as Return
//	type Set: the named pools of a job: Add, All() []Stats, Close
