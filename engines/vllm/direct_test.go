package vllm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// echo serves a handler for one direct client, and counts the connections.
type echo struct {
	*httptest.Server
	*direct
	mu    sync.Mutex
	dials int
}

func newEcho(t *testing.T, o Options, handle http.HandlerFunc) *echo {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	e := &echo{Server: httptest.NewUnstartedServer(handle)}
	e.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			e.mu.Lock()
			e.dials++
			e.mu.Unlock()
		}
	}
	e.Start()
	if o.InFlight == 0 {
		o.InFlight = 4
	}
	e.direct = newDirect(e.URL, "/a%20b", o)
	require.NotNil(t, e.direct)
	t.Cleanup(func() {
		e.closeIdle(time.Now())
		e.CloseClientConnections()
		e.Close()
		goleak.VerifyNone(t, leaks)
	})
	return e
}

func (e *echo) ask(ctx context.Context, body string) (int, string, error) {
	var b bytes.Buffer
	status, _, err := e.post(ctx, func(to []byte) []byte { return append(to, body...) }, &b)
	return status, b.String(), err
}

func (e *echo) connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dials
}

func TestDirectSendsAndReads(t *testing.T) {
	e := newEcho(t, Options{APIKey: "key"}, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if q.Host == "" || q.ContentLength != int64(len(body)) || q.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "bad head", http.StatusBadRequest)
			return
		}
		switch string(body) {
		case "chunked":
			for range 3 {
				fmt.Fprint(w, "piece ")
				w.(http.Flusher).Flush()
			}
		case "refused":
			http.Error(w, "no", http.StatusServiceUnavailable)
		case "last":
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, "bye")
		default:
			fmt.Fprintf(w, "%s %s %s %d", q.Method, q.RequestURI, q.Header.Get("Authorization"), len(body))
		}
	})
	for _, c := range []struct {
		body, want  string
		status, all int // connections made until then
	}{
		{"", "POST /a%20b Bearer key 0", 200, 1},
		{strings.Repeat("x", 100000), "POST /a%20b Bearer key 100000", 200, 1}, // its buffer is not kept
		{"chunked", "piece piece piece ", 200, 1},
		{"refused", "no\n", 503, 1},
		{"last", "bye", 200, 1},
		{"y", "POST /a%20b Bearer key 1", 200, 2},
	} {
		status, got, err := e.ask(t.Context(), c.body)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		require.Equal(t, c.status, status)
		require.Equal(t, c.all, e.connections())
	}
}

func TestDirectKeepsWhatItMay(t *testing.T) {
	var in sync.WaitGroup // all at once
	in.Add(6)
	e := newEcho(t, Options{InFlight: 4}, func(http.ResponseWriter, *http.Request) { in.Done(); in.Wait() })
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, _, err := e.ask(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Len(t, e.idle, 4)
	e.idle[0].since = time.Now().Add(-time.Hour)
	e.prune()
	require.Len(t, e.idle, 3)
}

// A server that closed a connection while it was idle costs nothing; one that closes every connection is an error.
func TestDirectTriesAnotherConnection(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	defer func() { goleak.VerifyNone(t, leaks) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var served []int // requests of each connection
	var all sync.WaitGroup
	all.Go(func() {
		for answers := range 3 { // the first connection answers none, the others one and two requests
			c, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(c)
			n := 0
			for ; n < answers; n++ {
				q, err := http.ReadRequest(r)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, q.Body)
				fmt.Fprint(c, "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
			served = append(served, n)
			_ = c.Close()
		}
		_ = l.Close()
	})
	d := newDirect("http://"+l.Addr().String(), "/", Options{InFlight: 2})
	e := &echo{direct: d}
	_, _, err = e.ask(t.Context(), "x") // a fresh connection that is closed
	var transport *url.Error
	require.ErrorAs(t, err, &transport)
	require.True(t, lost(err))
	for range 3 {
		status, got, err := e.ask(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "200 ok", fmt.Sprint(status, " ", got))
	}
	all.Wait()
	require.Equal(t, []int{0, 1, 2}, served)
	_, _, err = e.ask(t.Context(), "x")
	require.ErrorContains(t, err, "refused")
	require.Empty(t, d.idle)
}

func TestDirectEndsWithItsContext(t *testing.T) {
	started := make(chan struct{}, 1)
	e := newEcho(t, Options{}, func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		started <- struct{}{}
		<-q.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	_, _, err := e.ask(ctx, "x")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, e.idle)
	_, _, err = e.ask(ctx, "x")
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _, err = e.ask(ctx, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, lost(err))
}

func TestDirectLeavesTheRestToHTTP(t *testing.T) {
	require.Nil(t, newDirect("https://a", "/", Options{}))
	require.Nil(t, newDirect("http://a", "/", Options{APIKey: "a\r\nb: c"}))
	require.Nil(t, newDirect("http://u:p@a", "/", Options{}))
	require.Nil(t, newDirect("http://a", "/", Options{Transport: http.DefaultTransport.(*http.Transport)}))
	for base, want := range map[string]string{"http://a": "a:80", "http://[::1]:8000": "[::1]:8000", "http://a:81/v": "a:81"} {
		require.Equal(t, want, newDirect(base, "/", Options{}).address)
	}
	f := newFake(t) // a server behind one that sends elsewhere
	to := httptest.NewServer(http.RedirectHandler(f.URL+nativePath, http.StatusTemporaryRedirect))
	t.Cleanup(to.Close)
	e := connect(t, nil, f)
	e.fleet.replicas[0].completer.direct = newDirect(to.URL, nativePath, Options{InFlight: 1})
	c, err := e.Generate(t.Context(), request(2, 1, 2, 3))
	require.NoError(t, err)
	require.Len(t, c.TokenIDs, 2)
	require.True(t, slices.Max(c.TokenIDs) < fakeVocab)
}
