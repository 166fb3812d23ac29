package serve

import "net/http"

// events writes server-sent events. The status is sent with the first one, so that an earlier error can have its own.
type events struct {
	s       *Server
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (s *Server) events(w http.ResponseWriter) *events {
	return &events{s: s, w: w, control: http.NewResponseController(w)}
}

// send writes one event and flushes it.
func (e *events) send(v any) error {
	data, err := marshal(v)
	if err != nil {
		return err
	}
	return e.raw(data)
}

func (e *events) raw(data []byte) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	line := make([]byte, 0, len(data)+8)
	line = append(append(append(line, "data: "...), data...), "\n\n"...)
	if _, err := e.w.Write(line); err != nil {
		return err
	}
	return e.control.Flush()
}

// close ends the stream: with the error where there is one.
func (e *events) close(err error) {
	if err != nil && !e.begun {
		e.s.fail(e.w, err)
		return
	}
	if err != nil {
		b, _ := body(err)
		if e.send(b) != nil {
			return
		}
	}
	_ = e.raw([]byte("[DONE]")) // the client may be gone
}

// streamOptions are OpenAI's and vLLM's.
type streamOptions struct {
	Usage      bool `json:"include_usage"`
	Continuous bool `json:"continuous_usage_stats"`
}

func (o *streamOptions) usage() bool      { return o != nil && o.Usage }
func (o *streamOptions) continuous() bool { return o != nil && o.Usage && o.Continuous }
