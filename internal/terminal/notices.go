package terminal

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Notices are lines of the process that may come while a block is drawn, such as that of a signal. It is safe for concurrent use.
type Notices struct {
	mu sync.Mutex
	w  io.Writer
}

// NewNotices returns notices that are written to w.
func NewNotices(w io.Writer) *Notices { return &Notices{w: w} }

// Say writes a line.
func (n *Notices) Say(line string) {
	n.mu.Lock()
	w := n.w
	n.mu.Unlock()
	fmt.Fprintln(w, line)
}

// Through makes notices go to w, until back.
func (n *Notices) Through(w io.Writer) (back func()) {
	if n == nil {
		return func() {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.w
	n.w = w
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.w = before
	}
}

type noticesKey struct{}

// On puts the notices into a context.
func (n *Notices) On(ctx context.Context) context.Context {
	return context.WithValue(ctx, noticesKey{}, n)
}

// NoticesOf are the notices of a context; nil: it has none.
func NoticesOf(ctx context.Context) *Notices {
	n, _ := ctx.Value(noticesKey{}).(*Notices)
	return n
}
