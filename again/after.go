package again

import (
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
