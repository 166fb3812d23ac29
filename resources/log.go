package resources

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Log takes what the workers of a file print for people: whole lines, each behind the name, and a last one without an end when the resources are closed.
// nil: nobody reads it.
func (r *Resources) Log(name string) io.Writer {
	if r.options.Log == nil {
		return nil
	}
	l := &lines{name: name, to: r.options.Log}
	r.OnClose(l.end)
	return l
}

// mostLine is how many bytes without an end of line are kept until they are written as a line.
const mostLine = 8 << 10

// lines passes whole lines on.
type lines struct {
	name string
	to   io.Writer
	mu   sync.Mutex
	rest []byte // behind mu; of a line that has not ended
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		n := bytes.IndexByte(l.rest, '\n')
		if n < 0 && len(l.rest) < mostLine {
			return len(b), nil
		}
		if n < 0 {
			n = len(l.rest) - 1
		}
		if err := l.pass(n + 1); err != nil {
			return len(b), err
		}
	}
}

// pass writes the first n bytes of the rest as a line. l.mu is held.
func (l *lines) pass(n int) error {
	if line := strings.TrimRight(string(l.rest[:n]), "\r\n"); line != "" {
		if _, err := io.WriteString(l.to, l.name+": "+line+"\n"); err != nil {
			return err
		}
	}
	l.rest = l.rest[n:]
	return nil
}

// end writes a line that has no end. Nobody is told where that fails, as for the lines before: they are for people only.
func (l *lines) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.pass(len(l.rest))
	return nil
}
