// Package terminaltest is a terminal for tests of what is drawn on one. It does not know more sequences than the program writes: another one is an error.
package terminaltest

import (
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/terminal"
)

// Screen is a terminal as far as a block needs one: lines that wrap, line feeds, the cursor to the beginning of a line above, and clearing below.
type Screen struct {
	Width, Height int
	lines         [][]rune // with what has scrolled out
	x, y          int      // y counts in lines
}

// Write shows text. A sequence that it does not know is an error.
func (s *Screen) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		for len(s.lines) <= s.y {
			s.lines = append(s.lines, nil)
		}
		switch r := text[i]; {
		case r == '\n':
			s.x, s.y = 0, s.y+1
		case r == '\r':
			s.x = 0
		case r == '\x1b':
			n := 0
			for i += 2; text[i] >= '0' && text[i] <= '9' || text[i] == ';'; i++ {
				if text[i] != ';' {
					n = 10*n + int(text[i]-'0')
				}
			}
			switch text[i] {
			case 'F':
				top := max(0, len(s.lines)-s.Height)
				s.x, s.y = 0, max(top, s.y-max(1, n))
			case 'm': // a colour
			case 'J':
				s.lines = s.lines[:s.y+1]
				s.lines[s.y] = s.lines[s.y][:min(s.x, len(s.lines[s.y]))]
			default:
				return 0, fmt.Errorf("terminaltest: an escape that is not known ends in %q", text[i])
			}
		default:
			if s.x+terminal.Columns(r) > s.Width {
				s.x, s.y = 0, s.y+1
				s.lines = append(s.lines, nil)
			}
			for len(s.lines[s.y]) <= s.x {
				s.lines[s.y] = append(s.lines[s.y], ' ')
			}
			s.lines[s.y][s.x] = r
			s.x += terminal.Columns(r)
		}
	}
	for len(s.lines) <= s.y {
		s.lines = append(s.lines, nil)
	}
	return len(p), nil
}

// String is all that was shown and not taken away, with what has scrolled out of sight.
func (s *Screen) String() string {
	var out []string
	for _, line := range s.lines {
		out = append(out, strings.TrimRight(string(line), " "))
	}
	return strings.Join(out, "\n")
}
