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
