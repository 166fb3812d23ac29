package mcp

import (
	"strings"
	"sync"

	"github.com/agentfly/agentfly/internal/wording"
)

// tail keeps the end of what a server says on standard error, for people.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

const (
	tailBytes = 4096
	tailLines = 5
)

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, b...)
	if extra := len(t.bytes) - tailBytes; extra > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[extra:]...)
	}
	return len(b), nil
}

// String is one line: "; it said: …", or nothing.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.SplitSeq(strings.ToValidUTF8(string(t.bytes), "\uFFFD"), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, wording.Clip(line, 200))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "; it said: " + strings.Join(lines[max(0, len(lines)-tailLines):], " | ")
}
