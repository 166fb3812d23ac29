// Package terminal makes text of models, tools and programs safe to show on a terminal. An escape sequence in it could
// move the cursor over what stands there, set the clipboard (OSC 52), hide the target of a link (OSC 8) or answer for
// the keyboard; a bidirectional control could show a text in another order than it has. Such characters are spelt out.
// JSON for programs needs none of this: see JSON.
//
// It does not judge what a text says, and it does not change what is stored: texts are made safe where they are printed.
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// Text is s with every control character but the line feed and the tab spelt as \x1b or \u202e, and so is every byte that is no UTF-8.
func Text(s string) string {
	at := strings.IndexFunc(s, unsafe)
	if at < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		b.WriteString(spell(r, s[i:i+n]))
		i += n
	}
	return b.String()
}

// unsafe is a character that does something to a terminal, or to the order of what it shows.
func unsafe(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0: // C0, DEL, C1
		return true
	case r == 0x2028 || r == 0x2029: // they end lines
		return true
	}
	return unicode.Is(unicode.Bidi_Control, r) || r >= 0xe0000 && r <= 0xe007f // tags: text that nobody sees
}

func spell(r rune, raw string) string {
	switch {
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Sprintf(`\x%02x`, raw[0])
	case !unsafe(r):
		return raw
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Writer writes to w what Text makes of what it gets. A character may come in two pieces. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the beginning of a character
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

func (t *Writer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := append(t.rest, p...)
	end := len(all)
	for i := end - 1; i >= 0 && i >= end-utf8.UTFMax; i-- {
		if utf8.RuneStart(all[i]) {
			if !utf8.FullRune(all[i:]) {
				end = i
			}
			break
		}
	}
	t.rest = bytes.Clone(all[end:])
	if _, err := io.WriteString(t.w, Text(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// JSON is data with the characters of Text that JSON leaves as they are, such as U+009B, as \u escapes: the same values.
func JSON(data []byte) []byte {
	if bytes.IndexFunc(data, unsafe) < 0 {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) { // valid UTF-8, as a JSON writer makes it; what stands between values is no control but \n
		switch {
		case !unsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// Is says whether w is a terminal, or writes above the block of one.
func Is(w any) bool { return file(w) != nil }

// file is the terminal that w is; nil: it is none.
func file(w any) *os.File {
	if a, ok := w.(above); ok {
		return file(a.w)
	}
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || !isatty.IsTerminal(f.Fd()) {
		return nil
	}
	return f
}
