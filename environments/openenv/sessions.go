package openenv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// sessions are those of a server.
type sessions struct {
	offer *offer
	most  int
	idle  time.Duration   // after which one without a websocket ends
	ctx   context.Context // of all sessions
	stop  context.CancelFunc
	all   sync.WaitGroup // websockets, and reap

	mu       sync.Mutex
	byID     map[string]*session // those that are being opened too
	draining bool
	empty    chan struct{} // closed when it drains and no session is left
	once     sync.Once
}

func newSessions(of *offer, o ServerOptions) *sessions {
	v := &sessions{offer: of, most: o.MaxSessions, idle: o.Idle, byID: map[string]*session{}, empty: make(chan struct{})}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.all.Go(v.reap)
	return v
}

// of opens a session for a websocket, or finds the one that MCP's session/create opened.
func (v *sessions) of(ctx context.Context, id string) (*session, error) {
	if id == "" {
		return v.open(ctx, true)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.byID[id]
	switch {
	case s == nil:
		//lint:ignore ST1005 these are OpenEnv's words
		return nil, fmt.Errorf("Unknown session_id: %s", clip(id))
	case s.attached:
		//lint:ignore ST1005 these are OpenEnv's words
		return nil, fmt.Errorf("Session %s already has an attached WebSocket", clip(id))
	}
	s.attached, s.used = true, time.Now()
	return s, nil
}

// open makes an environment where there is room for one.
func (v *sessions) open(ctx context.Context, attached bool) (*session, error) {
	s := &session{offer: v.offer, id: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), attached: attached, used: time.Now()}
	v.mu.Lock()
	if n := len(v.byID); n >= v.most || v.draining {
		most := v.most
		v.mu.Unlock()
		return nil, &serverError{details{
			Message: fmt.Sprintf("Server at capacity: %d/%d sessions active. Cannot accept new connections.", n, most), Code: codeCapacity, Active: &n, Max: &most,
		}}
	}
	v.byID[s.id] = s
	v.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.make(ctx); err != nil {
		v.forget(s)
		return nil, &serverError{details{Message: err.Error(), Code: codeFactory, FactoryName: v.offer.name}}
	}
	return s, nil
}

// forget gives a session's place back.
func (v *sessions) forget(s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byID, s.id)
	if v.draining && len(v.byID) == 0 {
		v.once.Do(func() { close(v.empty) })
	}
}

// drop ends a session. It waits for a message that is being answered, and may be called again.
func (v *sessions) drop(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut()
	v.forget(s)
}

// reap ends the sessions without a websocket that nobody used for long.
func (v *sessions) reap() {
	tick := time.NewTicker(max(v.idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-tick.C:
		}
		v.mu.Lock()
		var idle []*session
		for _, s := range v.byID {
			if !s.attached && s.busy == 0 && time.Since(s.used) > v.idle {
				s.attached = true // nobody attaches to it any more
				idle = append(idle, s)
			}
		}
		v.mu.Unlock()
		for _, s := range idle {
			v.drop(s)
		}
	}
}

// named is the session that a request means, which is not ended while it is answered; nil without a name.
func (v *sessions) named(id string, of *session) (s *session, end func(), wrong string) {
	if of != nil || id == "" {
		return of, func() {}, ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s = v.byID[id]
	if s == nil {
		return nil, nil, "Unknown session_id: " + clip(id)
	}
	s.busy++
	s.used = time.Now()
	return s, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		s.busy--
		s.used = time.Now()
	}, ""
}

// enter admits a websocket, which drain then waits for.
func (v *sessions) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.draining {
		v.all.Add(1)
	}
	return !v.draining
}

// drain refuses new sessions, waits until those that are open have ended, at most for the time given, and ends the rest. It returns when every
// environment is closed, and may be called again.
func (v *sessions) drain(within time.Duration) error {
	v.mu.Lock()
	v.draining = true
	open := len(v.byID)
	if open == 0 {
		v.once.Do(func() { close(v.empty) })
	}
	v.mu.Unlock()
	var err error
	if open > 0 {
		timer := time.NewTimer(within)
		defer timer.Stop()
		select {
		case <-v.empty:
		case <-timer.C:
			v.mu.Lock()
			open = len(v.byID)
			v.mu.Unlock()
			if open > 0 {
				err = fmt.Errorf("%w: %d", ErrDrained, open)
			}
		}
	}
	v.stop()
	v.mu.Lock()
	var rest []*session
	for _, s := range v.byID {
		if s != nil && !s.attached {
			rest = append(rest, s)
		}
	}
	v.mu.Unlock()
	for _, s := range rest {
		v.drop(s)
	}
	v.all.Wait()
	return err
}

// seize keeps websockets from a session; attached: one has it already. nil: there is no such session.
func (v *sessions) seize(id string) (s *session, attached bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s = v.byID[id]
	attached = s != nil && s.attached
	if s != nil {
		s.attached = true // nobody attaches to it any more
	}
	return s, attached
}

// isDraining tells whether no session is opened any more.
func (v *sessions) isDraining() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.draining
}
