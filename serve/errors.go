package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/httpserver"
)

// badf is a request that is wrong in param.
func badf(param, format string, args ...any) error {
	return &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Param: param}
}

// kinds are vLLM's names of errors.
var kinds = map[int]string{
	http.StatusBadRequest: "BadRequestError", http.StatusUnauthorized: "AuthenticationError", http.StatusForbidden: "PermissionDeniedError",
	http.StatusNotFound: "NotFoundError", http.StatusMethodNotAllowed: "MethodNotAllowedError", http.StatusRequestEntityTooLarge: "RequestTooLargeError",
	http.StatusUnsupportedMediaType: "UnsupportedMediaTypeError", http.StatusTooManyRequests: "RateLimitError",
	http.StatusInternalServerError: "InternalServerError", http.StatusServiceUnavailable: "ServiceUnavailableError",
}

type errorBody struct {
	Error errorInfo `json:"error"`
}

type errorInfo struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// asAPI gives every error a status.
func asAPI(err error) *dialects.Error {
	var api *dialects.Error
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, engines.ErrTooLong):
		return &dialects.Error{Status: http.StatusBadRequest, Message: err.Error(), Param: "prompt"}
	case errors.Is(err, engines.ErrClosed):
		return &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the engine is closed"}
	}
	return &dialects.Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

func body(err error) (errorBody, int) {
	e := asAPI(err)
	out := errorBody{errorInfo{Message: e.Message, Type: kinds[e.Status], Code: e.Status}}
	if e.Param != "" {
		out.Error.Param = &e.Param
	}
	return out, e.Status
}

// fail answers with an error. A client that is gone gets nothing.
func (s *Server) fail(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	b, status := body(err)
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden { // who has no key keeps no connection
		w.Header().Set("Connection", "close")
	}
	s.reply(w, status, b)
}

// reply writes v as JSON.
func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	data, err := marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"serve: the reply cannot be written as JSON","type":"InternalServerError","param":null,"code":500}}`)
	}
	writeJSON(w, status, data)
}

func writeJSON(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may be gone; nobody is left to tell
}

// marshal writes JSON without escaping < > &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// admit checks who asks. Without a key, only this machine's own programs may: a web page that a browser on it shows must
// not reach the server by a name of its own that resolves to a loopback address, nor by a plain form.
func (s *Server) admit(r *http.Request) error {
	if r.URL.Path == "/health" || r.URL.Path == "/ping" {
		return nil
	}
	if s.o.APIKey == "" {
		if !httpserver.Loopback(hostOf(r.Host)) {
			return &dialects.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("the host %q is not this machine; start the server with --api-key to serve others", r.Host)}
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || !httpserver.Loopback(u.Hostname()) {
				return &dialects.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("pages of %q may not use this server", origin)}
			}
		}
		return nil
	}
	if !httpserver.Bears(r, s.o.APIKey) && !httpserver.Same(r.Header.Get("x-api-key"), s.o.APIKey) { // the second is Anthropic's clients'
		return &dialects.Error{Status: http.StatusUnauthorized, Message: "the API key is missing or wrong; send it as Authorization: Bearer KEY"}
	}
	return nil
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

// read parses the request's JSON object into v. The request is held until release.
func (s *Server) read(w http.ResponseWriter, r *http.Request, v any) (release func(), err error) {
	h := &holding{Reader: http.MaxBytesReader(w, r.Body, s.o.MaxBody), s: s}
	return h.release, s.readFrom(h, r, v)
}

func (s *Server) readFrom(body io.Reader, r *http.Request, v any) error {
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
			return &dialects.Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request has more than the %d bytes that are allowed", s.o.MaxBody)}
		}
		return badf("", "the request could not be read: %v", err)
	}
	return parse(data, v)
}

// handle reads a request of type T and has it answered in its places of the queue; what fails before the reply began is
// told to the client.
func handle[T any](s *Server, texts bool, answer func(http.ResponseWriter, *http.Request, *places, *T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		release, err := s.read(w, r, &in)
		defer release()
		if err == nil {
			err = s.inQueue(texts, func(p *places) error { return answer(w, r, p, &in) })
		}
		if err != nil {
			s.fail(w, err)
		}
	}
}

// inQueue calls f with a first place.
func (s *Server) inQueue(texts bool, f func(*places) error) error {
	p, err := s.enter(texts)
	if err != nil {
		return err
	}
	defer p.leave()
	return f(p)
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
