package cli

import (
	"io"
	"strings"

	"github.com/agentfly/agentfly/internal/terminal"
)

// folding breaks the lines of steps, evaluations, notes and the summary that are wider than the terminal between words, and moves what follows
// in. Other lines stay whole: one that is a command is copied from the screen.
type folding struct {
	to    io.Writer
	width func() int // of the terminal now; 0: lines are as long as they are
}

// foldedLines begin those lines, with where the rest of each stands.
var foldedLines = []struct {
	begin  string
	indent int
}{
	{"step ", 13},
	{"evaluation ", 26},
	{"note: ", 6},
	{"try ", 15},
	{"worse ", 15},
	{"best ", 15},
	{"time ", 15},
	{"speed ", 15},
	{"trajectories ", 15},
	{"held-out ", 15},
	{"stopped early ", 15},
	{strings.Repeat(" ", 15), 15},
}

func (f folding) Write(b []byte) (int, error) {
	width := f.width()
	if width == 0 {
		return f.to.Write(b)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		out.WriteString(fold(line, width))
	}
	if _, err := io.WriteString(f.to, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

func fold(line string, width int) string {
	for _, kind := range foldedLines {
		if !strings.HasPrefix(line, kind.begin) || strings.HasPrefix(strings.TrimSpace(line), "agentfly ") || width < 2*kind.indent {
			continue
		}
		var out strings.Builder
		rest := strings.TrimSuffix(line, "\n")
		for room := width; terminal.ColumnsOf(rest) > room; room = width - kind.indent {
			at := lastBlank(rest[:len(terminal.Cut(rest, room))+1])
			if at <= 0 || strings.TrimSpace(rest[:at]) == "" {
				break
			}
			out.WriteString(strings.TrimRight(rest[:at], " ") + "\n" + strings.Repeat(" ", kind.indent))
			rest = strings.TrimLeft(rest[at:], " ")
		}
		return out.String() + rest + line[len(strings.TrimSuffix(line, "\n")):]
	}
	return line
}

// lastBlank is where to break: between two columns, which two blanks part, where one begins in the second half, else between two words.
func lastBlank(text string) int {
	for i := len(text) - 1; i > len(text)/2; i-- {
		if text[i] == ' ' && text[i-1] == ' ' {
			return i - 1
		}
	}
	for i := len(text) - 1; i > 0; i-- {
		if text[i] == ' ' {
			return i
		}
	}
	return 0
}

// folded is a writer of people's lines to the terminal that out is.
func folded(to, out io.Writer) io.Writer {
	if !terminal.Is(out) {
		return to
	}
	return folding{to, func() int { return terminal.Width(out) }}
}
