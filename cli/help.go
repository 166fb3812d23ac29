package cli

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/terminal"
)

// The library's printer of help is a variable of its package, its only way to let lines be as wide as the terminal.
func init() {
	cli.HelpPrinter = func(out io.Writer, template string, data any) {
		var text bytes.Buffer
		cli.HelpPrinterCustom(&text, template, data, nil)
		_, _ = io.WriteString(out, fitted(text.String(), terminal.Width(out))) // as the library's own: who reads no help needs no error
	}
}

// columns finds where the second column of a line of help begins.
var columns = regexp.MustCompile(`^ +\S.*? {2,}`)

// fitted wraps lines of help at a width, with what a line explains below where the explanation begins; width 0 wraps none.
func fitted(text string, width int) string {
	if width == 0 {
		return text
	}
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		first := columns.FindString(line)
		indent := len(first) // names and flags are ASCII
		if indent == 0 || indent > width-24 {
			first = line[:len(line)-len(strings.TrimLeft(line, " "))]
			indent = len(first)
		}
		if terminal.ColumnsOf(line) <= width || indent > width-24 {
			out = append(out, line)
			continue
		}
		for i, part := range terminal.Wrap(line[len(first):], width-indent) {
			if i > 0 {
				first = strings.Repeat(" ", indent)
			}
			out = append(out, first+part)
		}
	}
	return strings.Join(out, "\n")
}
