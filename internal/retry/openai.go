package retry

import (
	"errors"
	"net/http"
	"strings"

	client "github.com/sashabaranov/go-openai"
)

// Passing tells whether another attempt may succeed where err is what the client said: the connection broke, the reply cannot be read, or the
// status is 408, 429 or from 500 on. What the client refuses before it sends anything stays refused.
func (n Noted) Passing(err error) bool {
	status := 0
	if e := (*client.APIError)(nil); errors.As(err, &e) {
		status = e.HTTPStatusCode
	} else if e := (*client.RequestError)(nil); errors.As(err, &e) {
		status = e.HTTPStatusCode
	}
	return status == 0 && n.sent || status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

type lineError struct{ error }

func (e lineError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e lineError) Unwrap() error { return e.error }

// OneLine is err with a text of one line: a proxy's answer may be a whole page.
func OneLine(err error) error { return lineError{err} }
