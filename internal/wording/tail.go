package wording

import (
	"strings"
	"sync"
)

// Tail keeps the last bytes that were written to it, such as what a process says on standard error before it ends. It is safe for concurrent use.
type Tail struct {
	most int
	mu   sync.Mutex
	last []byte
}

// NewTail returns a Tail that keeps at most so many bytes.
func NewTail(most int) *Tail { return &Tail{most: most} }

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - t.most; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	return len(b), nil
}

// String is what is kept. A character that is not whole is U+FFFD.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.last), "\uFFFD")
}
