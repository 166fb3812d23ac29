package mcp

import (
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

const (
	mostSaid  = 4096 // bytes of a server's standard error that are kept
	saidLines = 5    // of which a message shows the last
)

// saidBy is what a server said at the end on standard error, in one line: "; it said: …", or nothing.
func saidBy(said *wording.Tail) string {
	var lines []string
	for line := range strings.SplitSeq(said.String(), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, wording.Clip(line, 200))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "; it said: " + strings.Join(lines[max(0, len(lines)-saidLines):], " | ")
}
