package vllm

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// condition says what a replica may be used for.
type condition int

const (
	serving  condition = iota // has the current weights and takes requests
	updating                  // its weights are being changed, or are not proven yet: requests wait
	down                      // does not answer
	behind                    // answers, but has not proven the current weights
	asleep                    // has given its device memory back: requests wait for the next update
)

func (c condition) String() string {
	return [...]string{"serving", "updating", "down", "behind", "asleep"}[c]
}

// standing is what a replica is good for now: its condition, and the weights that it has.
type standing struct {
	mu      sync.Mutex
	server  Server // what it can do; set after a probe
	state   condition
	reason  error           // why it does not serve
	changed chan struct{}   // closed at the next change of state
	load    int             // requests that it works on
	epoch   context.Context // ends when the replica leaves service other than for an update: its requests end then
	leave   context.CancelFunc
	holding holding
}

func newStanding() *standing {
	s := &standing{state: down, changed: make(chan struct{})}
	s.epoch, s.leave = context.WithCancel(context.Background())
	return s
}

// set changes the state. Leaving for down or behind ends the requests in flight: they are repeated elsewhere.
func (s *standing) set(c condition, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(c, reason)
}

func (s *standing) setLocked(c condition, reason error) {
	if s.state == c && c != serving {
		s.reason = reason
		return
	}
	if c == down || c == behind {
		s.leave()
		s.epoch, s.leave = context.WithCancel(context.Background())
	}
	s.state, s.reason = c, reason
	close(s.changed)
	s.changed = make(chan struct{})
}

// fail takes a replica that serves or sleeps out of service, and notes of one that is behind that it does not answer any more; during an update that
// is the update's matter.
func (s *standing) fail(c condition, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == serving || s.state == asleep || s.state == behind && c == down {
		s.setLocked(c, reason)
	}
}

func (s *standing) status() (condition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.reason
}

// works is how many requests the replica works on.
func (s *standing) works() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load
}

func (s *standing) info() Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

func (s *standing) setInfo(server Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server
}

// settle waits until the replica is not updating and returns the versions that it had since the one of that serial.
func (s *standing) settle(ctx, epoch context.Context, first int) ([]adopted, error) {
	for {
		s.mu.Lock()
		state, changed := s.state, s.changed
		at := slices.IndexFunc(s.holding.history, func(a adopted) bool { return a.serial >= first })
		since := slices.Clone(s.holding.history[max(0, at):])
		s.mu.Unlock()
		if epoch.Err() != nil || state == down || state == behind || at < 0 {
			return nil, errLeft
		}
		if state == serving {
			return since, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if epoch.Err() != nil {
				return nil, errLeft
			}
			return nil, ctx.Err()
		}
	}
}

// held is which weights the replica has.
func (s *standing) held() holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}

// hold changes what is known of the weights.
func (s *standing) hold(change func(*holding)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.holding)
}

// adopt makes a version the one that new requests are answered with.
func (s *standing) adopt(name, model string, number int32) {
	s.hold(func(h *holding) { h.adopt(name, model, number) })
}

// current is what a request needs that is sent now: the context that ends it, the model that it names, and the serial of the
// version that answers it at first.
func (s *standing) current() (epoch context.Context, model string, serial int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holding
	return s.epoch, h.model, h.history[len(h.history)-1].serial
}

// serves tells whether it serves with the weights of that name.
func (s *standing) serves(version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == serving && s.holding.version == version
}

// change is closed at the next change of state.
func (s *standing) change() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// busy is how many requests it works on; ok is false where it does not serve.
func (s *standing) busy() (load int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load, s.state == serving
}

// count adds to the requests that it works on.
func (s *standing) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load += n
}

// end ends the requests in flight, for good.
func (s *standing) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
}

var (
	errLeft  = errors.New("the replica went out of service meanwhile")
	errMixed = errors.New("the weights changed meanwhile and the route does not say which scored which token")
)
