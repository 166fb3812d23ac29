package orchestrator

import (
	"fmt"
	"io"

	"github.com/agentfly/agentfly/orchestrator/session"
)

// console tells the user what a run does, line by line, and what was noted of how its job runs.
type console struct {
	out   io.Writer
	notes *session.Notes
}

func (c console) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

// warn tells the user something at once.
func (c console) warn(note string) { c.say("note: %s", note) }

// news tells what was noted since the last call.
func (c console) news() {
	for _, note := range c.notes.News() {
		c.warn(note)
	}
}
