package retry

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// longest is what a server that names a later time is taken to mean.
const longest = 24 * time.Hour

// decimal are the seconds of a Retry-After: whole ones (RFC 9110, 10.2.3), or what some servers send, with a fraction.
var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// After says how long a server wants to be left alone: the header Retry-After in seconds or as a date, from 0, which is a date that has
// passed, to a day. not ok: it does not say, or nothing that can be read.
func After(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if decimal.MatchString(value) {
		s, _ := strconv.ParseFloat(value, 64) // out of range is infinite, which is bounded like the rest
		return time.Duration(min(s, longest.Seconds()) * float64(time.Second)), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), longest), true
}

// Noting is a transport that tells whoever called Note what came of a request, where a client above drops it.
type Noting struct{ Base http.RoundTripper }

// Noted is what came of the requests of a context, as Note's caller reads it afterwards.
type Noted struct {
	After time.Duration // that the last response asks to be left alone: 0 for none, at most 5 minutes
	sent  bool          // a request went to the transport
}

var _ http.RoundTripper = Noting{}

type noteKey struct{}

const mostNoted = 5 * time.Minute

// Note has what comes of requests with this context written to note, which is to be new.
func Note(ctx context.Context, note *Noted) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// RoundTrip implements http.RoundTripper.
func (n Noting) RoundTrip(q *http.Request) (*http.Response, error) {
	r, err := n.Base.RoundTrip(q)
	if note, ok := q.Context().Value(noteKey{}).(*Noted); ok {
		*note = Noted{sent: true}
		if err == nil {
			wait, _ := After(r.Header, time.Now())
			note.After = min(wait, mostNoted)
		}
	}
	return r, err
}
