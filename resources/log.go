package resources

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Log takes what the workers of a file print for people: whole lines, each behind the name. nil: nobody reads it.
func (r *Resources) Log(name string) io.Writer {
	if r.options.Log == nil {
		return nil
	}
	return &lines{name: name, to: r.options.Log}
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
		if line := strings.TrimRight(string(l.rest[:n+1]), "\r\n"); line != "" {
			if _, err := io.WriteString(l.to, l.name+": "+line+"\n"); err != nil {
				return len(b), err
			}
		}
		l.rest = l.rest[n+1:]
	}
}
