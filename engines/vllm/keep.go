package vllm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
)

// steady is how long a server must have answered for its earlier ends to be forgotten.
const steady = 10 * time.Minute

// Kept is a server of this process that is started again, at the same address, when it ends by itself or its engine dies. It begins with the
// weights of ServeOptions.Model; an Engine that watches it gives it the current ones, and their proof, before it serves.
type Kept struct {
	options ServeOptions
	note    func(string)
	cancel  context.CancelFunc
	ended   chan struct{} // closed when watch has returned

	mu       sync.Mutex
	process  *Process
	restarts int
	gone     error
	freed    chan struct{} // closed: a server that ended may be started; see Hold
}

// Keep starts a server and returns when it answers. note is told of every end and every new start, in one line; nil for
// nobody. The caller closes it.
func Keep(ctx context.Context, o ServeOptions, note func(string)) (*Kept, error) {
	if err := o.complete(); err != nil { // here, so that every start has the same port
		return nil, fmt.Errorf("vllm: serve: %w", err)
	}
	p, err := Serve(ctx, o)
	if err != nil {
		return nil, err
	}
	if note == nil {
		note = func(string) {}
	}
	k := &Kept{options: o, note: note, process: p, ended: make(chan struct{}), freed: make(chan struct{})}
	close(k.freed)
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(k.ended)
		k.watch(ctx)
	}()
	return k, nil
}

// URL is where the server answers.
func (k *Kept) URL() string { return k.current().URL }

// APIKey is what the server asks for, at every start the same. It is what Options.APIKey must be.
func (k *Kept) APIKey() string { return k.options.APIKey }

// Log is the file of the server's output, of all its starts.
func (k *Kept) Log() string { return k.current().Log }

// PID is the process that runs now, or ran last.
func (k *Kept) PID() int { return k.current().group.PID() }

// Restarts counts the starts after the first one that succeeded.
func (k *Kept) Restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.restarts
}

// Gone says why the server will not come back, or is nil. It is what Options.Gone asks.
func (k *Kept) Gone() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone
}

// Hold keeps a server that ends from being started until Hold(false): its device's memory is in use.
func (k *Kept) Hold(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.freed:
		if on {
			k.freed = make(chan struct{})
		}
	default:
		if !on {
			close(k.freed)
		}
	}
}

// awaitFree waits until nothing holds the server back.
func (k *Kept) awaitFree(ctx context.Context) error {
	k.mu.Lock()
	freed := k.freed
	k.mu.Unlock()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the server and waits for it.
func (k *Kept) Close() error {
	k.cancel()
	<-k.ended
	return k.current().Close()
}

func (k *Kept) current() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process
}

// watch starts the server again each time it ends, until it ends too often.
func (k *Kept) watch(ctx context.Context) {
	backoff := retry.Backoff{First: k.options.Backoff, Most: mostBackoff}
	failures := 0
	began := time.Now()
	for {
		p := k.current()
		why, err := p.awaitEnd(ctx)
		if err != nil {
			return
		}
		if time.Since(began) > steady {
			failures = 0
		}
		reason := fmt.Errorf("the server ended: %w; its log %s ends: %s", why, p.Log, tail(p.Log))
		for {
			failures++
			if failures > k.options.Restarts {
				k.give(fmt.Errorf("it was started again %d times: %w", failures-1, reason))
				return
			}
			wait := backoff.Wait(failures)
			k.note(fmt.Sprintf("%v; start %d of %d again in %v", reason, failures, k.options.Restarts, wait))
			if retry.Pause(ctx, wait) != nil || k.awaitFree(ctx) != nil {
				return
			}
			next, err := Serve(ctx, k.options)
			if err == nil {
				k.take(next)
				break
			}
			if ctx.Err() != nil {
				return
			}
			reason = err
		}
		began = time.Now()
	}
}

const mostBackoff = time.Minute

func orExit(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func (k *Kept) take(p *Process) {
	k.mu.Lock()
	k.process = p
	k.restarts++
	k.mu.Unlock()
	k.note(p.URL + " answers again; it gets the current weights and proves them before it serves")
}

func (k *Kept) give(reason error) {
	k.mu.Lock()
	k.gone = reason
	k.mu.Unlock()
	k.note("the server is not started again: " + reason.Error())
}
