package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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

// reportPanics notes the first panic of each tool.
func reportPanics(note func(line string)) func(tool string, err error, trace []byte) {
	var seen sync.Map
	return func(tool string, err error, trace []byte) {
		if _, again := seen.LoadOrStore(tool, true); !again {
			note(panicked(err, trace))
		}
	}
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

// Notes are what the user should know of how a job runs. They are kept until somebody takes them, or told at once (Tell).
type Notes struct {
	mu    sync.Mutex
	early []string // known before it begins
	late  []string // of what happens meanwhile
	said  map[string]bool
	tell  func(line string) // nil: they are kept
}

// Tell has tell called with each note, in order and for one at a time: with those that are kept now, and with each that comes later.
func (n *Notes) Tell(tell func(line string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range append(n.early, n.late...) {
		tell(line)
	}
	n.early, n.late, n.tell = nil, nil, tell
}

// add tells a line, or keeps it in to. mu is held.
func (n *Notes) add(to *[]string, line string) {
	if n.tell != nil {
		n.tell(line)
		return
	}
	*to = append(*to, line)
}

// Know notes something before the run begins.
func (n *Notes) Know(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.add(&n.early, line)
}

// Early is what was known before the run began.
func (n *Notes) Early() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.early
}

// Note notes something that happens while the run goes on. It is safe for concurrent use, as the others are.
func (n *Notes) Note(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.add(&n.late, line)
}

// Once is Note for what is true of the whole run, and is told once.
func (n *Notes) Once(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said == nil {
		n.said = map[string]bool{}
	}
	if !n.said[line] {
		n.said[line] = true
		n.add(&n.late, line)
	}
}

// News takes what happened since the last call.
func (n *Notes) News() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.late
	n.late = nil
	return out
}
