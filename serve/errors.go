package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/wording"
)

// badf is a request that is wrong in param.
func badf(param, format string, args ...any) error {
	return &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Param: param}
}

// kinds are vLLM's names of errors.
var kinds = map[int]string{
	http.StatusBadRequest: "BadRequestError", http.StatusUnauthorized: "AuthenticationError", http.StatusForbidden: "PermissionDeniedError",
	http.StatusNotFound: "NotFoundError", http.StatusMethodNotAllowed: "MethodNotAllowedError", http.StatusRequestEntityTooLarge: "RequestTooLargeError",
	http.StatusConflict: "ConflictError", http.StatusUnsupportedMediaType: "UnsupportedMediaTypeError", http.StatusTooManyRequests: "RateLimitError",
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
	case errors.Is(err, engines.ErrRefused):
		return &dialects.Error{Status: http.StatusBadRequest, Message: err.Error()}
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
func fail(w http.ResponseWriter, err error) {
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
	reply(w, status, b)
}

// reply writes v as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	data, err := wording.JSON(v)
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
