// Package watchdog says what a run waits for, and for whom: an engine's replica, a tool, a reward, the store, the trainer.
//
// A Board travels in the context. Whoever may wait enters before and leaves after, whatever the outcome; without a board
// that is free. Everything is safe for concurrent use. A wait costs about a microsecond and 144 bytes while it lasts, so that
// thousands a second are nothing; only a report looks at all of them.
//
// It does not end or repeat what waits: it reports, and deadlines are those of whoever waits.
package watchdog

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
	first *Wait
	moves uint64 // waits that began or ended
}

// Wait is one wait; nil is one that nobody looks at.
type Wait struct {
	board      *Board
	part, who  string
	since      time.Time
	prev, next *Wait // on the board, in no order
	over       bool
}

type boardKey struct{}

type waitKey struct{}

// NewBoard makes an empty board.
func NewBoard() *Board { return &Board{} }

// On puts the board into a context.
func (b *Board) On(ctx context.Context) context.Context { return context.WithValue(ctx, boardKey{}, b) }

// Of is the board of a context; nil: it has none.
func Of(ctx context.Context) *Board {
	b, _ := ctx.Value(boardKey{}).(*Board)
	return b
}

// Enter begins a wait of who (a trajectory's request, a step) for part ("tool calculator").
func Enter(ctx context.Context, part, who string) *Wait {
	b := Of(ctx)
	if b == nil {
		return nil
	}
	w := &Wait{board: b, part: part, who: who, since: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.next = b.first; w.next != nil {
		w.next.prev = w
	}
	b.first = w
	b.moves++
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
	b := w.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.over {
		return
	}
	w.over = true
	b.moves++
	if w.next != nil {
		w.next.prev = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		b.first = w.next
	}
	w.prev, w.next = nil, nil
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
	w.part = part
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
func (b *Board) Lines() (out []Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	at := map[string]int{} // in out
	for w := b.first; w != nil; w = w.next {
		i, ok := at[w.part]
		if !ok {
			i = len(out)
			at[w.part], out = i, append(out, Line{Part: w.part, For: -1})
		}
		l := &out[i]
		l.Count++
		if d := now.Sub(w.since); d > l.For || d == l.For && w.who < l.Oldest {
			l.For, l.Oldest = d, w.who
		}
	}
	slices.SortFunc(out, func(x, y Line) int { return cmp.Or(cmp.Compare(y.For, x.For), cmp.Compare(x.Part, y.Part)) })
	return out
}

func (b *Board) moved() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moves
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
	seen, since, next := b.moved(), time.Now(), quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask:
			print(Report(b.Lines()))
		case <-tick:
			if moves := b.moved(); moves != seen {
				seen, since, next = moves, time.Now(), quiet
				continue
			}
			if still := time.Since(since); still >= next {
				print(fmt.Sprintf("nothing moved for %s; %s", round(still), Report(b.Lines())))
				next += quiet
			}
		}
	}
}
