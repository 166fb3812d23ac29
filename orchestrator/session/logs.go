package session

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	mostHeld = 256 << 10 // bytes that wait for the run folder
	mostLogs = 64 << 20  // bytes of a process in the file
)

// WorkersLog is the file below RUN/logs with what workers of tools, rewards and agents print.
const WorkersLog = "workers.log"

// Logs keep what workers print. They begin before there is a run folder: until Open the text waits, and without one it is dropped. The zero
// value is ready; all methods are safe for concurrent use.
type Logs struct {
	mu      sync.Mutex
	held    []byte
	folder  string // "" before Open
	file    *os.File
	written int
	closed  bool
}

// Write keeps whole lines with the time. It never fails: what cannot be kept is lost, and the run goes on.
func (l *Logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := append([]byte(time.Now().UTC().Format("2006-01-02T15:04:05.000Z ")), b...)
	switch {
	case l.closed || l.written > mostLogs:
	case l.folder == "":
		if len(l.held)+len(text) <= mostHeld {
			l.held = append(l.held, text...)
		}
	default:
		l.write(text)
	}
	return len(b), nil
}

// write appends to the file, which is made with the first line. mu is held.
func (l *Logs) write(text []byte) {
	if l.file == nil {
		if os.MkdirAll(l.folder, 0o755) != nil {
			return
		}
		file, err := os.OpenFile(filepath.Join(l.folder, WorkersLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return
		}
		l.file = file
	}
	n, _ := l.file.Write(text)
	if l.written += n; l.written > mostLogs {
		fmt.Fprintf(l.file, "… more than %d MiB of this process: the rest is dropped\n", mostLogs>>20)
	}
}

// Open says where the text goes.
func (l *Logs) Open(folder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.folder = folder; len(l.held) > 0 {
		l.write(l.held)
		l.held = nil
	}
}

// Close closes the file. What is written later is dropped.
func (l *Logs) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.held = true, nil
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}
