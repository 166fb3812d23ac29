package retry

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestAfter(t *testing.T) {
	const no = -1
	for value, want := range map[string]time.Duration{
		"0":                              0,
		"7":                              7 * time.Second,
		" 7 ":                            7 * time.Second,
		"0.25":                           250 * time.Millisecond,
		"86400":                          24 * time.Hour,
		"99999999999":                    24 * time.Hour,
		strings.Repeat("9", 400):         24 * time.Hour,
		"Fri, 02 Jan 2026 12:01:00 GMT":  time.Minute,
		"Friday, 02-Jan-26 12:01:00 GMT": time.Minute, // as RFC 850 had it
		"Fri Jan  2 12:01:00 2026":       time.Minute, // as C does
		"Fri, 02 Jan 2026 11:59:59 GMT":  0,
		"Fri, 02 Jan 2076 12:00:00 GMT":  24 * time.Hour,
		"Mon, 01 Jan 0001 00:00:00 GMT":  0,
		"":                               no,
		"soon":                           no,
		"-3":                             no,
		"+3":                             no,
		"1e3":                            no,
		"0x3":                            no,
		"NaN":                            no,
		"inf":                            no,
		".5":                             no,
		"5.":                             no,
		"3 s":                            no,
		"2026-01-02T12:01:00Z":           no,
	} {
		wait, ok := After(http.Header{"Retry-After": {value}}, noon)
		require.Equal(t, want != no, ok, value)
		require.Equal(t, max(want, 0), wait, value)
	}
	_, ok := After(nil, noon)
	require.False(t, ok)
}

// answers is a transport that gives one header after another; "" is a broken connection.
type answers []string

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	value := (*a)[0]
	if *a = (*a)[1:]; value == "" {
		return nil, errors.New("reset")
	}
	return &http.Response{Header: http.Header{"Retry-After": {value}}}, nil
}

func TestNoting(t *testing.T) {
	var note Noted
	q, err := http.NewRequestWithContext(Note(t.Context(), &note), http.MethodGet, "http://x.test/", nil)
	require.NoError(t, err)
	transport := Noting{&answers{"3", "soon", "4", "", "5"}}
	for _, want := range []time.Duration{3 * time.Second, 0, 4 * time.Second, 0} {
		r, err := transport.RoundTrip(q)
		require.Equal(t, r == nil, err != nil)
		require.Equal(t, want, note.After)
	}
	_, err = transport.RoundTrip(q.WithContext(t.Context())) // nobody asked
	require.NoError(t, err)
	require.Zero(t, note.After)
}

func FuzzAfter(f *testing.F) {
	for _, value := range []string{"7", "0.25", "-3", "NaN", "Fri, 02 Jan 2026 12:01:00 GMT", "Fri, 02 Jan 9999 12:01:00 GMT"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		wait, ok := After(http.Header{"Retry-After": {value}}, noon)
		if wait < 0 || wait > longest || !ok && wait != 0 {
			t.Fatalf("%q: %v, %v", value, wait, ok)
		}
	})
}
