package gateway

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// tenure is who has a session: the holder that asked first.
type tenure struct {
	mu     sync.Mutex
	holder string
	begun  chan struct{} // closed when somebody has it
}

func newTenure() tenure { return tenure{begun: make(chan struct{})} }

// take has a holder have the session where nobody has it, and tells whether the holder has it now.
func (t *tenure) take(holder string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.begun:
	default:
		t.holder = holder
		close(t.begun)
	}
	return t.holder == holder
}

// name is whose the session is.
func (t *tenure) name() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holder
}

// recall has the session be theirs who made the recorded calls.
func (t *tenure) recall(r *trajectory.Trajectory) {
	for _, turn := range r.Turns {
		if turn.Incoming != nil {
			t.take(turn.Incoming.Holder)
		}
	}
}

// Hold has a holder of the session's key go on with it, where no other one does.
func (s *Session) Hold(holder string) error {
	if s.tenure.take(holder) {
		return nil
	}
	return &dialects.Error{
		Status: http.StatusUnauthorized, Code: "session_over",
		Message: fmt.Sprintf("the session of this key is over: another agent has %s, which was handed out again when the run went on", wording.Clip(s.o.Name, 80)),
	}
}

// Held is closed when a holder has the session.
func (s *Session) Held() <-chan struct{} { return s.tenure.begun }
