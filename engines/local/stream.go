package local

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

// stream carries tokens from the loop to the goroutine of a Stream call. It holds as many as the reader is late, at most
// the request's MaxTokens, so that a slow reader never holds the loop up.
type stream struct {
	detail engines.Detail
	ready  chan struct{} // buffered: there is something pending

	mu      sync.Mutex
	pending []engines.Token
}

// push adds the step's output; the loop calls it.
func (s *stream) push(step *cgo.Step, output int, version int32) {
	t := engines.Token{ID: step.Sampled[output], Logprob: step.Reported[output], Version: version}
	if n := s.detail.Top; n > 0 {
		t.Top = alternatives(step, output, n)
	}
	s.mu.Lock()
	s.pending = append(s.pending, t)
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take empties what is pending into on.
func (s *stream) take(on func([]engines.Token)) {
	s.mu.Lock()
	tokens := s.pending
	s.pending = nil
	s.mu.Unlock()
	if len(tokens) > 0 {
		on(tokens)
	}
}

// Stream implements engines.Streamer.
func (e *Engine) Stream(ctx context.Context, r engines.Request, d engines.Detail, on func([]engines.Token)) (engines.Completion, error) {
	if err := e.check(r); err != nil {
		return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, err)
	}
	if r.Top != 0 {
		return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, engines.ErrStreamTop)
	}
	if d.Top < 0 || d.Top > e.vocab {
		return engines.Completion{}, fmt.Errorf("local: request %s: Detail.Top is %d, allowed are 0 to %d", r.ID, d.Top, e.vocab)
	}
	s, err := e.newSequence(ctx, &r)
	if err != nil {
		return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, err)
	}
	if s.over() {
		return s.completion, nil
	}
	s.stream = &stream{detail: d, ready: make(chan struct{}, 1)}
	if err := e.enqueue(s); err != nil {
		return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, err)
	}
	for {
		select {
		case <-s.stream.ready:
			s.stream.take(on)
		case <-s.done:
			s.stream.take(on)
			if s.err != nil {
				return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, s.err)
			}
			return s.completion, nil
		case <-ctx.Done():
			e.poke()
			s.stream.take(on)
			return engines.Completion{}, fmt.Errorf("local: request %s: %w", r.ID, ctx.Err())
		}
	}
}
