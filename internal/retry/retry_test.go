package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/retry"
)

// asked sends a request with a body to a server that answers with one status after another.
func asked(t *testing.T, ctx context.Context, header http.Header, statuses ...int) (status, attempts int, waits []time.Duration, err error) {
	t.Helper()
	var mu sync.Mutex // a broken connection's handler and the next one's are of two goroutines
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil || string(body) != "hello" {
			t.Errorf("body %q, %v", body, err)
		}
		for k, v := range header {
			w.Header()[k] = v
		}
		mu.Lock()
		s := statuses[min(attempts, len(statuses)-1)]
		attempts++
		mu.Unlock()
		if s == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(s)
		fmt.Fprint(w, s)
	}))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: &retry.Transport{Base: base, Attempts: 4, Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}}}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("hello"))
	require.NoError(t, err)
	r, err := c.Do(q)
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return 0, attempts, waits, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(r.StatusCode), string(b))
	return r.StatusCode, attempts, waits, nil
}

func TestAskedAgain(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name     string
		header   http.Header
		statuses []int
		status   int
		attempts int
		waits    []time.Duration
	}{
		{"at once", nil, []int{200}, 200, 1, nil},
		{"refused", nil, []int{404}, 404, 1, nil},
		{"not implemented", nil, []int{501}, 501, 1, nil},
		{"busy, broken, cut", nil, []int{429, 503, 0, 200}, 200, 4, []time.Duration{250 * ms, 500 * ms, 1000 * ms}},
		{"always", nil, []int{500}, 500, 4, []time.Duration{250 * ms, 500 * ms, 1000 * ms}},
		{"the server says when", http.Header{"Retry-After": {"3"}}, []int{429, 200}, 200, 2, []time.Duration{3 * time.Second}},
		{"the server says now", http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, []int{503, 200}, 200, 2, []time.Duration{0}},
		{"the server says nonsense", http.Header{"Retry-After": {"soon"}}, []int{503, 200}, 200, 2, []time.Duration{250 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, attempts, waits, err := asked(t, t.Context(), c.header, c.statuses...)
			require.NoError(t, err)
			require.Equal(t, c.status, status)
			require.Equal(t, c.attempts, attempts)
			require.Equal(t, c.waits, waits)
		})
	}
}

func TestNoWaitBeyondTheDeadline(t *testing.T) {
	for _, c := range []struct {
		deadline time.Duration
		after    string
		status   int
		attempts int
	}{
		{time.Minute, "9", 200, 2},
		{20 * time.Second, "12", 200, 2},
		{8 * time.Second, "9", 429, 1},
		{time.Minute, "3600", 429, 1},
	} {
		t.Run(c.after+" of "+c.deadline.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			status, attempts, _, err := asked(t, ctx, http.Header{"Retry-After": {c.after}}, 429, 200)
			require.NoError(t, err)
			require.Equal(t, []int{c.status, c.attempts}, []int{status, attempts})
		})
	}
}

type failing struct {
	err   error
	count int
}

func (f *failing) RoundTrip(*http.Request) (*http.Response, error) { f.count++; return nil, f.err }

func TestFinalErrors(t *testing.T) {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x.test/", nil)
	require.NoError(t, err)
	for _, c := range []struct {
		err   error
		count int
	}{{errors.New("reset"), 3}, {fmt.Errorf("refused: %w", retry.ErrFinal), 1}} {
		f := &failing{err: c.err}
		tr := &retry.Transport{Base: f, Sleep: func(context.Context, time.Duration) error { return nil }}
		_, err := tr.RoundTrip(q)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.count, f.count)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &failing{err: errors.New("reset")}
	_, err = (&retry.Transport{Base: f}).RoundTrip(q.WithContext(ctx))
	require.Error(t, err)
	require.Equal(t, 1, f.count)
}
