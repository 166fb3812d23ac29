package vllm

import (
	"context"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
)

// looks are those at the version of a server's weights, for replies of a route that does not say which weights sampled. Each
// reply needs one that begins after the reply ended; replies that end while one is under way share the next.
type looks struct {
	client  *client
	backoff time.Duration
	timeout time.Duration // of one
	turn    chan struct{} // holds a value while one looks

	mu      sync.Mutex
	begun   int
	last    int // number of the newest one that ended; the next two fields are its result
	version string
	err     error
}

func newLooks(c *client, o Options) *looks {
	return &looks{client: c, backoff: o.Backoff, timeout: o.HealthTimeout, turn: make(chan struct{}, 1)}
}

const mostLooks = 3 // for one result: a failure costs a finished completion

// now returns a version that the server had after the call.
func (l *looks) now(ctx context.Context) (string, error) {
	l.mu.Lock()
	before := l.begun
	l.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	if l.last > before {
		defer l.mu.Unlock()
		return l.version, l.err
	}
	l.begun++
	number := l.begun
	l.mu.Unlock()
	version, err := l.retried(ctx)
	if ctx.Err() == nil { // else the others look for themselves
		l.mu.Lock()
		l.last, l.version, l.err = number, version, err
		l.mu.Unlock()
	}
	return version, err
}

// retried repeats a look that failed for what may pass.
func (l *looks) retried(ctx context.Context) (version string, err error) {
	attempts := retry.Attempts{Most: mostLooks, Backoff: retry.Backoff{First: l.backoff, Most: mostLooks * l.backoff}, Sleep: retry.Pause}
	_, err, _ = attempts.Do(ctx, func() (after time.Duration, final bool, err error) {
		one, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		version, err = l.client.weightVersion(one)
		return 0, err != nil && !passing(err), err
	})
	return version, err
}
