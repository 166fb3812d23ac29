package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/sessionkey"
)

// sessions are those of a gateway, by their keys.
type sessions struct {
	mu      sync.Mutex
	byKey   map[string]*Session
	ended   map[string]string // keys of sessions that are over, with the names, the last few
	order   []string          // of ended
	starts  bool              // it is not known yet which sessions of before go on
	awaited map[string]bool   // keys of sessions that go on and are not open yet
	opened  chan struct{}     // closed, and made anew, when one opens or what is awaited changes
	closed  bool
	ending  func() bool // the process is about to end
}

func newSessions(ending func() bool) *sessions {
	return &sessions{ending: ending, byKey: map[string]*Session{}, ended: map[string]string{}, awaited: map[string]bool{}, opened: make(chan struct{})}
}

// add makes a session known. Its key must be new.
func (g *sessions) add(s *Session) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := s.o.Key
	switch {
	case g.closed:
		return errors.New("gateway: it is closed")
	case g.byKey[key] != nil:
		return fmt.Errorf("gateway: session %s: its key is that of session %s", s.o.Name, g.byKey[key].o.Name)
	}
	g.byKey[key] = s
	delete(g.awaited, key)
	g.changed()
	s.leave = sync.OnceFunc(func() { g.remove(key, s.o.Name) }) // whose key another one may have when it ends again
	return nil
}

func (g *sessions) remove(key, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
	if g.leaves() { // it goes on in the next process
		return
	}
	g.ended[key] = name
	if g.order = append(g.order, key); len(g.order) > remembered {
		delete(g.ended, g.order[0])
		g.order = g.order[1:]
	}
}

// leaves tells whether sessions that end now go on in the next process. mu is held.
func (g *sessions) leaves() bool { return g.closed || g.ending() }

// count is how many are open.
func (g *sessions) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.byKey)
}

// changed has requests that wait look again. mu is held.
func (g *sessions) changed() {
	close(g.opened)
	g.opened = make(chan struct{})
}

// found is what there is of the keys of a request.
type found struct {
	session *Session // of the first key that has one
	holder  string   // that the key was made for
	ended   string   // the name of the first one's that is over; "": none is
	wait    bool     // no session is open, and that of a key may come
	leaves  bool     // so, in the next process
}

// later tells whether the session of a key may open later.
func (f found) later() bool { return f.ended == "" && (f.wait || f.leaves) }

// look also returns until when nobody need look again.
func (g *sessions) look(keys []string) (f found, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		key, holder := sessionkey.Split(key)
		if s := g.byKey[key]; s != nil {
			return found{session: s, holder: holder}, g.opened
		}
		ended := g.ended[key]
		f.ended = cmp.Or(f.ended, ended)
		f.wait = f.wait || !g.closed && ended == "" && (g.starts || g.awaited[key])
	}
	f.leaves = len(keys) > 0 && g.leaves()
	return f, g.opened
}

// remembered is how many ended sessions a gateway still knows by name, to tell a late agent what happened.
const remembered = 4096

// patience is how long a request waits for its session, which goes on after a restart.
const patience = 30 * time.Second

// recover says that sessions of before go on and are not known yet: until await tells them, a request with an unknown key waits.
func (g *sessions) recover() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starts = true
}

// await says which sessions of before go on, by their keys: requests for those that are not open yet wait for them.
func (g *sessions) await(keys ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starts = false
	for _, k := range keys {
		if g.byKey[k] == nil && g.ended[k] == "" {
			g.awaited[k] = true
		}
	}
	g.changed()
}

// forgo says that sessions which await named, and which are not open yet, do not go on.
func (g *sessions) forgo(keys ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range keys {
		delete(g.awaited, k)
	}
	g.changed()
}

// find waits for the session of one of the keys to open, where it goes on after a restart, and says what there is.
func (g *sessions) find(ctx context.Context, keys ...string) found {
	var late <-chan time.Time
	for {
		f, changed := g.look(keys)
		if !f.wait {
			return f
		}
		if late == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
			return f
		case <-ctx.Done():
			return f
		}
	}
}

// close ends all sessions: what is being sampled for them is dropped, and their agents are told to try again.
func (g *sessions) close() {
	g.mu.Lock()
	g.closed = true
	g.changed()
	open := make([]*Session, 0, len(g.byKey))
	for _, s := range g.byKey {
		open = append(open, s)
	}
	g.mu.Unlock()
	for _, s := range open {
		s.End()
	}
}
