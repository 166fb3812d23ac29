package serve

import (
	"net/http"

	"github.com/agentfly/agentfly/dialects"
)

// events are the server-sent events of vLLM's routes.
type events struct {
	w http.ResponseWriter
	*dialects.Events
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, Events: dialects.NewEvents(w)}
}

// send writes one event and flushes it.
func (e *events) send(v any) error { return e.Send("", v) }

// close ends the stream: with the error where there is one.
func (e *events) close(err error) {
	if err != nil && !e.Begun() {
		fail(e.w, err)
		return
	}
	if err != nil {
		b, _ := body(err)
		if e.send(b) != nil {
			return
		}
	}
	_ = e.Raw("", []byte("[DONE]")) // the client may be gone
}

// streamOptions are OpenAI's and vLLM's.
type streamOptions struct {
	Usage      bool `json:"include_usage"`
	Continuous bool `json:"continuous_usage_stats"`
}

func (o *streamOptions) usage() bool      { return o != nil && o.Usage }
func (o *streamOptions) continuous() bool { return o != nil && o.Usage && o.Continuous }
