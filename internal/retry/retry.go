// Package retry sends HTTP requests that may be sent twice until a server takes them, and reads when a server wants to be asked again.
//
// It does not know whether a request may be sent twice, or what a refusal means: its callers do.
package retry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// ErrFinal marks an error of the transport below that another attempt cannot help.
var ErrFinal = errors.New("final")

// Transport repeats a request that met a broken connection, status 429 or a status from 500 on. It is safe for concurrent use. A
// request needs a deadline, since a server is waited for as long as it asks, and one with a body needs GetBody, which http.NewRequest sets.
type Transport struct {
	Base     http.RoundTripper
	Attempts int                                              // in all; 0 is 3
	Sleep    func(ctx context.Context, d time.Duration) error // nil: Sleep
}

const (
	firstWait = 250 * time.Millisecond // where the server names none
	mostWait  = 20 * time.Second       // of those
)

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip gives the last answer, or the last error. It does not begin a wait that the deadline would end.
func (t *Transport) RoundTrip(q *http.Request) (*http.Response, error) {
	attempts, sleep := t.Attempts, t.Sleep
	if attempts <= 0 {
		attempts = 3
	}
	if sleep == nil {
		sleep = Sleep
	}
	ctx := q.Context()
	for n := 1; ; n++ {
		r, err := t.Base.RoundTrip(q)
		if n == attempts || !worthAnother(ctx, r, err) {
			return r, err
		}
		d, ok := wait(ctx, r, n)
		next, bodyErr := rewound(q)
		if !ok || bodyErr != nil {
			return r, err
		}
		if r != nil {
			_, _ = io.CopyN(io.Discard, r.Body, 64<<10) // so that the connection can be used again
			r.Body.Close()
		}
		if err := sleep(ctx, d); err != nil {
			return nil, err
		}
		q = next
	}
}

func worthAnother(ctx context.Context, r *http.Response, err error) bool {
	if err != nil {
		return ctx.Err() == nil && !errors.Is(err, ErrFinal)
	}
	return r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= 500 && r.StatusCode != http.StatusNotImplemented
}

// wait is how long to wait after the nth attempt; not ok: too long for the deadline.
func wait(ctx context.Context, r *http.Response, n int) (d time.Duration, ok bool) {
	d = Backoff{firstWait, mostWait}.Wait(n)
	if r != nil {
		if after, ok := After(r.Header, time.Now()); ok {
			d = after
		}
	}
	return d, fits(ctx, d)
}

func rewound(q *http.Request) (*http.Request, error) {
	if q.Body == nil || q.Body == http.NoBody {
		return q, nil
	}
	if q.GetBody == nil {
		return nil, errors.New("retry: the body cannot be read twice")
	}
	body, err := q.GetBody()
	if err != nil {
		return nil, err
	}
	next := q.Clone(q.Context())
	next.Body = body
	return next, nil
}

// fits tells whether a wait of d would end before the deadline of ctx, so that something can be tried after it.
func fits(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || d < time.Until(deadline)
}

// Sleep waits for d, or returns why ctx ended before.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
