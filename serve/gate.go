package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/agentfly/agentfly/dialects"
)

// gate holds requests while the server is paused and knows what runs.
type gate struct {
	mu      sync.Mutex
	paused  bool
	closed  bool
	open    chan struct{} // closed while requests may pass
	running map[*struct{ _ byte }]context.CancelCauseFunc
	idle    chan struct{} // closed and made anew when the last one leaves
}

// errAborted ends a choice with the finish reason abort.
var errAborted = errors.New("serve: aborted")

// errShut answers who comes or waits when the server ends.
var errShut = &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the server is shutting down"}

// errPaused answers whose work was aborted and leaves no part to reply with.
var errPaused = &dialects.Error{Status: http.StatusServiceUnavailable, Message: "aborted: the server was paused; ask again"}

func (g *gate) init() {
	g.open, g.idle = make(chan struct{}), make(chan struct{})
	close(g.open)
	g.running = map[*struct{ _ byte }]context.CancelCauseFunc{}
}

// enter waits until the server is not paused. leave must be called; the context ends with errAborted at an abort.
func (g *gate) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	for {
		g.mu.Lock()
		switch {
		case g.closed:
			g.mu.Unlock()
			return nil, nil, errShut
		case !g.paused:
			inner, cancel := context.WithCancelCause(ctx)
			key := &struct{ _ byte }{}
			g.running[key] = cancel
			g.mu.Unlock()
			return inner, func() { g.leave(key, cancel) }, nil
		}
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func (g *gate) leave(key *struct{ _ byte }, cancel context.CancelCauseFunc) {
	cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, key)
	if len(g.running) == 0 {
		close(g.idle)
		g.idle = make(chan struct{})
	}
}

// pause keeps requests from entering. idle closes when nothing runs any more, and is nil when nothing does; open closes when the pause ends.
func (g *gate) pause(abort bool) (idle, open <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.paused && !g.closed {
		g.paused, g.open = true, make(chan struct{})
	}
	if abort {
		for _, cancel := range g.running {
			cancel(errAborted)
		}
	}
	if len(g.running) == 0 {
		return nil, g.open
	}
	return g.idle, g.open
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused {
		g.paused = false
		close(g.open)
	}
}

// refusal is the error of work that an abort ended: by a pause, or at the server's end.
func (g *gate) refusal() error {
	if _, closed, _ := g.state(); closed {
		return errShut
	}
	return errPaused
}

func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.pause(true)
	g.resume()
}

func (g *gate) state() (paused, closed bool, running int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused, g.closed, len(g.running)
}
