// Package waits says what a run waits for, and for whom: an engine's replica, a tool, a reward, the store, the trainer.
//
// A Board travels in the context. Whoever may wait enters before and leaves after, whatever the outcome; without a board
// that is free. Everything is safe for concurrent use. A wait costs about a third of a microsecond and 128 bytes while it
// lasts, so that thousands a second are nothing.
package waits

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Board holds the waits of a run that have not ended.
type Board struct {
	mu    sync.Mutex
	parts map[string]*queue
	moves uint64
}

// queue is the waits for one part, the oldest first.
type queue struct {
	first, last *Wait
	count       int
}

// Wait is one wait; nil is one that nobody looks at.
type Wait struct {
	board      *Board
	part, who  string
	since      time.Time
	prev, next *Wait
	over       bool
}

type boardKey struct{}

type waitKey struct{}

// NewBoard makes an empty board.
func NewBoard() *Board { return &Board{parts: map[string]*queue{}} }

// On puts the board into a context.
func (b *Board) On(ctx context.Context) context.Context { return context.WithValue(ctx, boardKey{}, b) }

// Enter begins a wait of who (a trajectory's request, a step) for part ("tool calculator").
func Enter(ctx context.Context, part, who string) *Wait {
	b, _ := ctx.Value(boardKey{}).(*Board)
	if b == nil {
		return nil
	}
	w := &Wait{board: b, part: part, who: who, since: time.Now()}
	b.mu.Lock()
	b.append(w)
	b.moves++
	b.mu.Unlock()
	return w
}

// In puts the wait into a context, for Move further down.
func (w *Wait) In(ctx context.Context) context.Context {
	if w == nil {
		return ctx
	}
	return context.WithValue(ctx, waitKey{}, w)
}

// Leave ends the wait. It may be called again.
func (w *Wait) Leave() {
	if w == nil {
		return
	}
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.over {
		return
	}
	w.over = true
	w.board.remove(w)
	w.board.moves++
}

// Move says more exactly what the context's wait is for: the replica that got the request. The time goes on. It is no
// movement of the run: a request that is sent again and again has not moved.
func Move(ctx context.Context, part string) {
	w, _ := ctx.Value(waitKey{}).(*Wait)
	if w == nil {
		return
	}
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.over || w.part == part {
		return
	}
	w.board.remove(w)
	w.part = part
	w.board.append(w)
}

// append keeps a queue in the order of since; all but moved waits come last.
func (b *Board) append(w *Wait) {
	q := b.parts[w.part]
	if q == nil {
		q = &queue{}
		b.parts[w.part] = q
	}
	after := q.last
	for after != nil && w.since.Before(after.since) {
		after = after.prev
	}
	w.prev = after
	if after == nil {
		w.next, q.first = q.first, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		q.last = w
	} else {
		w.next.prev = w
	}
	q.count++
}

func (b *Board) remove(w *Wait) {
	q := b.parts[w.part]
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	if q.count--; q.count == 0 {
		delete(b.parts, w.part)
	}
}

// Line is what is waited for in one part.
type Line struct {
	Part   string
	Count  int
	Oldest string        // who waits longest
	For    time.Duration // how long
}

func (l Line) String() string {
	if l.Count == 1 {
		return fmt.Sprintf("%s: %s for %s", l.Part, l.Oldest, round(l.For))
	}
	return fmt.Sprintf("%s: %d, the oldest %s for %s", l.Part, l.Count, l.Oldest, round(l.For))
}

// round shows tenths of short times only.
func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// Lines are the parts that somebody waits for, the longest wait first.
func (b *Board) Lines() []Line {
	lines, _ := b.look()
	return lines
}

func (b *Board) look() (lines []Line, moves uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for part, q := range b.parts {
		lines = append(lines, Line{Part: part, Count: q.count, Oldest: q.first.who, For: now.Sub(q.first.since)})
	}
	slices.SortFunc(lines, func(x, y Line) int { return cmp.Or(cmp.Compare(y.For, x.For), cmp.Compare(x.Part, y.Part)) })
	return lines, b.moves
}

// Report says in one line what is waited for.
func Report(lines []Line) string {
	if len(lines) == 0 {
		return "waiting for nothing outside the process"
	}
	text := make([]string, len(lines))
	for i, l := range lines {
		text[i] = l.String()
	}
	return "waiting for " + strings.Join(text, "; ")
}

// Watch prints what is waited for when no wait began or ended for quiet, and again each time that this lasted as long
// again; 0 never does. It also prints at each signal of ask. It returns when ctx is done.
func (b *Board) Watch(ctx context.Context, quiet time.Duration, ask <-chan os.Signal, print func(line string)) {
	const looks = 4 // in quiet: how late it may be
	var tick <-chan time.Time
	if quiet > 0 {
		ticker := time.NewTicker(quiet / looks)
		defer ticker.Stop()
		tick = ticker.C
	}
	_, seen := b.look()
	since, next := time.Now(), quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask:
			lines, _ := b.look()
			print(Report(lines))
		case <-tick:
			lines, moves := b.look()
			if moves != seen {
				seen, since, next = moves, time.Now(), quiet
				continue
			}
			if still := time.Since(since); still >= next {
				print(fmt.Sprintf("nothing moved for %s; %s", round(still), Report(lines)))
				next += quiet
			}
		}
	}
}
