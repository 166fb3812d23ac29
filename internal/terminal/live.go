package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Live draws a block of lines below what is written, again and again in the same place, while text goes on above it. It changes no setting of the
// terminal and hides no cursor, so that a process that is killed leaves nothing to mend. It is safe for concurrent use.
type Live struct {
	w     io.Writer
	size  func() (columns, rows int, draw bool) // draw is false while the terminal is another process's
	block func(columns, rows int) []string      // made safe by whoever gives it; no line feeds

	mu     sync.Mutex
	drawn  int  // lines of the block on the screen
	within bool // the last text had no end of line: the block would stand behind it
	closed bool

	stop   chan struct{}
	joined sync.WaitGroup
}

// LiveOn tells whether a block may be drawn on w: a terminal that can move its cursor, and a user who did not ask for plain lines.
func LiveOn(w any) bool {
	return Is(w) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != "" && os.Getenv("AGENTFLY_PLAIN") == ""
}

// NewLive draws the block on w at once, after each text and every so often, until Close.
func NewLive(w io.Writer, size func() (columns, rows int, draw bool), every time.Duration, block func(columns, rows int) []string) *Live {
	l := &Live{w: w, size: size, block: block, stop: make(chan struct{})}
	l.Draw()
	l.joined.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-t.C:
				l.Draw()
			}
		}
	})
	return l
}

// SizeOf is the size of the terminal f, and whether this process may draw on it now. It asks each time: windows change.
func SizeOf(f *os.File) func() (columns, rows int, draw bool) {
	return func() (int, int, bool) {
		width, height := size(f)
		if width <= 0 {
			width = 80
		}
		if height <= 0 {
			height = 24
		}
		return width, height, foreground(f)
	}
}

// Draw draws the block anew.
func (l *Live) Draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(l.w, nil)
}

// Close takes the block away. Writers go on without it.
func (l *Live) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.write(l.w, nil)
	l.mu.Unlock()
	close(l.stop)
	l.joined.Wait()
}

// Forget leaves the block where it stands: others wrote below it, while this process was stopped.
func (l *Live) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drawn = 0
}

// Above is a writer to w, which is the same terminal, whose text stands above the block.
func (l *Live) Above(w io.Writer) io.Writer { return above{l, w} }

type above struct {
	l *Live
	w io.Writer
}

func (a above) Write(p []byte) (int, error) {
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	return a.l.write(a.w, p)
}

// write takes the block away, writes text and draws the block again, in as few writes as can be: a terminal shows nothing between. What cannot be
// written of the block itself is no error: the run goes on without its terminal.
func (l *Live) write(w io.Writer, text []byte) (int, error) {
	columns, rows, draw := l.size()
	var before, after bytes.Buffer
	if l.drawn > 0 && draw {
		fmt.Fprintf(&before, "\x1b[%dF\x1b[J", l.drawn)
	}
	l.drawn = 0 // one on a terminal that is another process's now is left where it is: what stands below it is not ours
	if len(text) > 0 {
		l.within = text[len(text)-1] != '\n'
	}
	if !l.closed && !l.within && draw {
		lines := l.block(columns, rows)
		lines = lines[:max(0, min(len(lines), rows-1))]
		for _, line := range lines {
			after.WriteString(Cut(line, columns-1) + "\n")
		}
		l.drawn = len(lines)
	}
	if w == l.w {
		n := before.Len()
		all := append(append(before.Bytes(), text...), after.Bytes()...)
		if len(all) == 0 {
			return 0, nil
		}
		wrote, err := l.w.Write(all)
		return max(0, min(wrote-n, len(text))), err
	}
	_, _ = l.w.Write(before.Bytes())
	n, err := w.Write(text)
	_, _ = l.w.Write(after.Bytes())
	return n, err
}

// Cut is what of a line of text has room in so many columns. A character that a terminal may show two columns wide counts as two.
func Cut(line string, columns int) string {
	used := 0
	for i, r := range line {
		if used += Columns(r); used > columns {
			return line[:i]
		}
	}
	return line
}

// wide are characters of two columns, as far as terminals agree on it: East Asian ones and emoji.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x2329, 0x232a, 1}, {0x23e9, 0x23f3, 1}, {0x25fd, 0x25fe, 1}, {0x2614, 0x2615, 1}, {0x2648, 0x2653, 1}, {0x26a1, 0x26a1, 1}, {0x2705, 0x2705, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xa960, 0xa97c, 1}, {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe10, 0xfe19, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1}},
	R32: []unicode.Range32{{0x16fe0, 0x18cff, 1}, {0x1b000, 0x1b2ff, 1}, {0x1f000, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// Columns is how many columns of a terminal a character takes.
func Columns(r rune) int {
	if unicode.Is(wide, r) {
		return 2
	}
	return 1
}

// ColumnsOf is how many columns of a terminal a line of text takes.
func ColumnsOf(line string) (n int) {
	for _, r := range line {
		n += Columns(r)
	}
	return n
}

// Join puts the parts of a line that have room in so many columns side by side, two spaces apart; the first stands in any case.
func Join(columns int, parts ...string) string {
	out := ""
	used := 0
	for _, part := range parts {
		n := ColumnsOf(part)
		switch {
		case part == "":
		case out == "":
			out, used = part, n
		case used+2+n <= columns:
			out, used = out+"  "+part, used+2+n
		}
	}
	return strings.TrimRight(out, " ")
}
