package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfly/agentfly/internal/terminal"
)

// labelled is the width of the words at the left edge of a page.
const labelled = 10

// page writes labelled lines and blocks of text, as wide as the terminal. What it is given is made safe; its own colours are not.
type page struct {
	out     io.Writer
	width   int // 0: lines are as long as they are
	colours bool
	written bool  // a line
	err     error // the first of writing
}

func (e *env) page() *page {
	return &page{out: e.out, width: terminal.Width(e.out), colours: terminal.Colours(e.out)}
}

func (p *page) write(line string) {
	p.written = true
	if p.err == nil {
		_, p.err = io.WriteString(p.out, strings.TrimRight(line, " ")+"\n")
	}
}

// paint is a text in a colour: 1 bold, 2 dim, 31 red, 32 green, 33 yellow.
func (p *page) paint(colour, text string) string {
	if !p.colours || colour == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line writes a label and what it is of; further lines stand below it.
func (p *page) line(label, format string, args ...any) {
	text := terminal.Text(strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
	for i, line := range terminal.Wrap(text, p.room(labelled)) {
		if i > 0 {
			label = ""
		}
		p.write(p.paint("1", fmt.Sprintf("%-*s", labelled, label)) + line)
	}
}

// room is what is left of a line beside so many columns; 0: any number.
func (p *page) room(taken int) int {
	if p.width == 0 {
		return 0
	}
	return max(20, p.width-taken)
}

// block writes a text with a bar at its left. Of one with more than most lines head and tail are shown; 0 shows all.
func (p *page) block(text, colour string, most int) {
	lines := terminal.Wrap(terminal.Text(strings.TrimRight(text, "\n")), p.room(4))
	show := func(lines []string) {
		for _, line := range lines {
			p.write("  " + p.paint("2", "│") + " " + p.paint(colour, line))
		}
	}
	if most > 0 && len(lines) > most+1 {
		head := (most + 1) / 2
		show(lines[:head])
		p.write("  " + p.paint("2", fmt.Sprintf("┊ %d lines more; --full shows them", len(lines)-most)))
		lines = lines[len(lines)-most+head:]
	}
	show(lines)
}

// samePlace tells whether two paths lead to the same file or folder, which need not be there.
func samePlace(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	one, err := os.Stat(a)
	other, missing := os.Stat(b)
	return err == nil && missing == nil && os.SameFile(one, other)
}
