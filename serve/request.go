package serve

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"

	"github.com/agentfly/agentfly/dialects"
)

// read parses the request's JSON object into v. The request is held until release.
func (q *queue) read(w http.ResponseWriter, r *http.Request, v any) (release func(), err error) {
	h := &holding{Reader: http.MaxBytesReader(w, r.Body, q.maxBody), all: &q.held, most: q.maxHeld}
	return h.release, readObject(h, r, v)
}

// readObject reads a body of JSON into v.
func readObject(body io.Reader, r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &dialects.Error{Status: http.StatusUnsupportedMediaType, Message: "the Content-Type must be application/json"}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		var large *http.MaxBytesError
		var api *dialects.Error
		switch {
		case errors.As(err, &api):
			return api
		case errors.As(err, &large):
			return &dialects.Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request has more than the %d bytes that are allowed", large.Limit)}
		}
		return badf("", "the request could not be read: %v", err)
	}
	return dialects.Decode(data, v)
}

// handle reads a request of type T and has it answered in its places of the queue; what fails before the reply began is
// told to the client.
func handle[T any](q *queue, texts bool, answer func(http.ResponseWriter, *http.Request, *places, *T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		release, err := q.read(w, r, &in)
		defer release()
		if err == nil {
			err = q.with(texts, func(p *places) error { return answer(w, r, p, &in) })
		}
		if err != nil {
			fail(w, err)
		}
	}
}

// holding counts the bytes of a request as they come, for the sum of all requests that are held at once.
type holding struct {
	io.Reader
	all  *atomic.Int64 // bytes of all of them
	most int64
	n    int64
}

func (h *holding) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.n += int64(n)
	if h.all.Add(int64(n)) > h.most {
		return n, &dialects.Error{Status: http.StatusTooManyRequests, Message: fmt.Sprintf("requests of more than %d bytes are being answered; try again later", h.most)}
	}
	return n, err
}

// release forgets the bytes of an answered request.
func (h *holding) release() { h.all.Add(-h.n) }
