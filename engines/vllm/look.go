package vllm

import (
	"context"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
)

// looks are those at the version of a server's weights, for replies of a route that does not say which weights sampled. Each
// reply needs one that begins after the reply ended; replies that end while one is under way share the next.
type looks struct {
	turn    chan struct{} // holds a value while one looks
	begun   int
	last    int // number of the newest one that ended; the next two fields are its result
	version string
	err     error
}

const mostLooks = 3 // for one result: a failure costs a finished completion

// lookNow returns a version that the server had after the call.
func (r *replica) lookNow(ctx context.Context) (string, error) {
	r.mu.Lock()
	before := r.looks.begun
	r.mu.Unlock()
	select {
	case r.looks.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-r.looks.turn }()
	r.mu.Lock()
	if r.looks.last > before {
		defer r.mu.Unlock()
		return r.looks.version, r.looks.err
	}
	r.looks.begun++
	number := r.looks.begun
	r.mu.Unlock()
	version, err := r.lookAgain(ctx)
	if ctx.Err() == nil { // else the others look for themselves
		r.mu.Lock()
		r.looks.last, r.looks.version, r.looks.err = number, version, err
		r.mu.Unlock()
	}
	return version, err
}

// lookAgain repeats a look that failed for what may pass.
func (r *replica) lookAgain(ctx context.Context) (version string, err error) {
	attempts := retry.Attempts{Most: mostLooks, Backoff: retry.Backoff{First: r.options.Backoff, Most: mostLooks * r.options.Backoff}, Sleep: retry.Pause}
	_, err, _ = attempts.Do(ctx, func() (after time.Duration, final bool, err error) {
		one, cancel := context.WithTimeout(ctx, r.options.HealthTimeout)
		defer cancel()
		version, err = r.weightVersion(one)
		return 0, err != nil && !passing(err), err
	})
	return version, err
}
