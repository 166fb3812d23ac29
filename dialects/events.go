package dialects

import (
	"net/http"

	"github.com/agentfly/agentfly/internal/wording"
)

// Events writes server-sent events. The status is sent with the first one, so that an error before it can have its own.
type Events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// NewEvents writes to w, to which nothing was written yet.
func NewEvents(w http.ResponseWriter) *Events {
	return &Events{w: w, control: http.NewResponseController(w)}
}

// Begun tells whether the status was sent.
func (e *Events) Begun() bool { return e.begun }

// Send writes v as one event and flushes it. name "": the event has no name.
func (e *Events) Send(name string, v any) error {
	data, err := wording.JSON(v)
	if err != nil {
		return err
	}
	return e.Raw(name, data)
}

// Raw writes an event whose data is one line.
func (e *Events) Raw(name string, data []byte) error {
	line := make([]byte, 0, len(name)+len(data)+17)
	if name != "" {
		line = append(append(append(line, "event: "...), name...), '\n')
	}
	line = append(append(append(line, "data: "...), data...), "\n\n"...)
	return e.write(line)
}

// Comment writes a line that clients ignore.
func (e *Events) Comment(text string) error { return e.write([]byte(": " + text + "\n\n")) }

func (e *Events) write(p []byte) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	if _, err := e.w.Write(p); err != nil {
		return err
	}
	return e.control.Flush()
}
