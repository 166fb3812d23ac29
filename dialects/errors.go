package dialects

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/agentfly/agentfly/internal/wording"
)

// Codes of errors that clients tell apart.
const (
	CodeOverflow = "context_length_exceeded"    // the prompt alone is longer than the context: clients compact their history
	CodeThreads  = "thread_unsupported_request" // Anthropic's: the client sends whole histories from then on
	CodeStored   = "previous_response_not_found"
)

// Overflow is the error of a conversation that leaves no room for a reply: limit is the model's context, tokens are those of the
// conversation. Its wording is that by which clients know that they must compact.
func Overflow(limit, tokens int) *Error {
	return &Error{
		Status: http.StatusBadRequest, Code: CodeOverflow, Limit: limit, Tokens: tokens,
		Message: fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, tokens),
	}
}

// badf is a request that is wrong in param.
func badf(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// unsupported is a field that cannot be honoured.
func unsupported(param string) *Error {
	return badf(param, "%s is not supported by this server; leave it out", param)
}

// asError gives every error a status.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

// fail answers with an error whose body is v.
func fail(w http.ResponseWriter, e *Error, v any) {
	h := w.Header()
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if h.Get("Retry-After") == "" { // without it some clients give up at once
			h.Set("Retry-After", "1")
		}
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	data, err := wording.JSON(v)
	if err != nil { // never: it holds texts
		data = []byte(`{}`)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(e.Status)
	_, _ = w.Write(data) // the client may be gone; nobody is left to tell
}

// openAIError is the body of an error of chat, completions and Responses.
type openAIError struct {
	Error openAIFault `json:"error"`
}

type openAIFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func openAIBody(e *Error) openAIError {
	out := openAIFault{Message: e.Message, Type: "invalid_request_error"}
	code := e.Code
	switch {
	case e.Status >= 500:
		out.Type = "server_error"
	case e.Status == http.StatusUnauthorized:
		out.Type = "authentication_error"
		if code == "" {
			code = "invalid_api_key"
		}
	case e.Status == http.StatusForbidden:
		out.Type = "permission_error"
	case e.Status == http.StatusTooManyRequests:
		out.Type = "rate_limit_error"
		if code == "" {
			code = "rate_limit_exceeded"
		}
	}
	if code != "" {
		out.Code = &code
	}
	if e.Param != "" {
		out.Param = &e.Param
	}
	return openAIError{out}
}

// openAIFail answers in the form of chat, completions and Responses.
func openAIFail(w http.ResponseWriter, err error) {
	e := asError(err)
	fail(w, e, openAIBody(e))
}
