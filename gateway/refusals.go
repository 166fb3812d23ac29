package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/wording"
)

// refusals keep why a session's last request was refused: many clients throw away the reason that they read, and the failure of their agent names it.
type refusals struct {
	mu   sync.Mutex
	last error // nil: none was refused since a call was answered
}

// note takes the error that a request is answered with. What the gateway or its engine cannot do is no refusal.
func (r *refusals) note(request string, err error) {
	refused := (*dialects.Error)(nil)
	if !errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = fmt.Errorf("the gateway refused %s (%d): %s", request, refused.Status, wording.Clip(refused.Message, 200))
}

// settle forgets what came before an answered call: the agent went on after it.
func (r *refusals) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = nil
}

func (r *refusals) newest() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// noted is a dialect whose errors are noted before they are sent.
type noted struct {
	dialects.Dialect
	note func(err error)
}

func (d noted) Fail(w http.ResponseWriter, err error) {
	d.note(err)
	d.Dialect.Fail(w, err)
}

func (d noted) Stream(w http.ResponseWriter, q *dialects.Request, base dialects.Reply) dialects.Writer {
	return notedWriter{d.Dialect.Stream(w, q, base), d.note}
}

type notedWriter struct {
	dialects.Writer
	note func(err error)
}

func (w notedWriter) Fail(err error) {
	w.note(err)
	w.Writer.Fail(err)
}
