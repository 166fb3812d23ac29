package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/tools"
)

// panicked is the note of the first panic of a tool, with the line where it happened.
func panicked(err error, trace []byte) string {
	at := panics.Place(trace)
	if at == "" {
		return err.Error()
	}
	return fmt.Sprintf("%v, at %s; further ones are counted in tools/broken", err, at)
}

// leftOver says which tools still run calls that nobody waits for; "": none.
func leftOver(r *tools.Registry) string {
	if r == nil {
		return ""
	}
	calls := r.Abandoned()
	if len(calls) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, calls[name]))
	}
	return "calls are still running that ignored their deadline (" + strings.Join(parts, ", ") + "); these tools must honour ctx"
}

// know tells the user of how the job runs, before it begins.
func (s *session) know(line string) { s.notes = append(s.notes, line) }

// note tells the user something that happens while the run goes on.
func (s *session) note(line string) {
	s.said.Lock()
	defer s.said.Unlock()
	s.late = append(s.late, line)
}

// lateNotes takes what was noted since the last call.
func (s *session) lateNotes() []string {
	s.said.Lock()
	defer s.said.Unlock()
	out := s.late
	s.late = nil
	return out
}
