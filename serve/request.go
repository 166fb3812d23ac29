package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode/utf8"

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
	return parse(data, v)
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

// parse decodes one JSON object; unknown fields are ignored.
func parse(data []byte, v any) error {
	if !utf8.Valid(data) {
		return badf("", "the request is not valid UTF-8")
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return badf("", "the request must be a JSON object")
	}
	err := json.Unmarshal(data, v)
	var kind *json.UnmarshalTypeError
	var api *dialects.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api):
		return api
	case errors.As(err, &kind):
		field := strings.TrimPrefix(strings.ReplaceAll(kind.Field, ".sampling.", "."), "sampling.")
		return badf(field, "%s: a JSON %s does not fit, %s is needed", field, kind.Value, kindName(kind))
	}
	return badf("", "the request is not JSON: %v", err)
}

func kindName(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); {
	case strings.HasPrefix(k, "int"), strings.HasPrefix(k, "uint"):
		return "an integer (" + k + ")"
	case strings.HasPrefix(k, "float"):
		return "a number"
	case k == "bool":
		return "true or false"
	case k == "slice":
		return "a list"
	case k == "struct", k == "map":
		return "an object"
	default:
		return "a " + k
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

// listLimit is how many elements a list of texts or objects has at most: as what Go makes of them they take many times their text.
const listLimit = 1 << 16

// rawList is a list whose elements are read later.
type rawList []json.RawMessage

func (l *rawList) UnmarshalJSON(data []byte) error {
	out, err := readList[json.RawMessage](data)
	*l = out
	return err
}

// readList reads a list element by element, up to the limit.
func readList[T any](data []byte) ([]T, error) {
	if data[0] != '[' {
		var out []T
		return out, json.Unmarshal(data, &out) // null, or its error says what is wrong
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []T{}
	for d.More() {
		if len(out) == listLimit {
			return nil, badf("", "a list has more than %d elements", listLimit)
		}
		var element T
		if err := d.Decode(&element); err != nil {
			return nil, err
		}
		out = append(out, element)
	}
	return out, nil
}
