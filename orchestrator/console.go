package orchestrator

import (
	"fmt"
	"io"

	"github.com/agentfly/agentfly/orchestrator/session"
)

// console tells the user what a run does, line by line, and what was noted of how its job runs. Whoever reads events gets each line as one.
type console struct {
	out   io.Writer
	notes *session.Notes
	event func(Event) // nil: nobody reads them
}

func (c console) say(format string, args ...any) {
	c.tell(Event{Kind: Line}, fmt.Sprintf(format, args...))
}

// warn tells the user something at once.
func (c console) warn(note string) {
	fmt.Fprintf(c.out, "note: %s\n", note)
	if c.event != nil {
		c.event(Event{Kind: Note, Text: note})
	}
}

// tell prints the lines of an event, which has the first one as its text; the others are events of their own.
func (c console) tell(e Event, lines ...string) {
	for i, line := range lines {
		fmt.Fprintln(c.out, line)
		if i > 0 {
			e = Event{Kind: Line}
		}
		e.Text = line
		if c.event != nil && (line != "" || e.Kind != Line) {
			c.event(e)
		}
	}
}

// news tells what was noted since the last call.
func (c console) news() {
	for _, note := range c.notes.News() {
		c.warn(note)
	}
}
