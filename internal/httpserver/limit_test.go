package httpserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serving starts a server and returns a connection to it; ended gets a word when a handler returns.
func serving(t *testing.T, o Options, handler http.HandlerFunc) (conn net.Conn, ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{}, 10)
	limited := Handler(handler, o)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		limited.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	return conn, ended
}

// A client that is refused before its body was read gets its answer at once, and its connection ends though the body never comes.
func TestBodyThatNobodyReads(t *testing.T) {
	for _, header := range []string{"Content-Length: 1000", "Content-Length: 100000000", "Transfer-Encoding: chunked", "Content-Length: 1000\r\nExpect: 100-continue"} {
		t.Run(header, func(t *testing.T) {
			conn, _ := serving(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
			begin := time.Now()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", header)
			reader := bufio.NewReader(conn)
			reply, err := http.ReadResponse(reader, nil)
			require.NoError(t, err)
			require.Equal(t, 401, reply.StatusCode)
			require.True(t, reply.Close)
			require.Less(t, time.Since(begin), linger, "the answer does not wait for the body")
			_, err = io.Copy(io.Discard, reader)
			require.NoError(t, err, "the server closes the connection")
			require.Less(t, time.Since(begin), 5*linger)
		})
	}
}

// net/http looks for this method to close half of a connection.
var _ interface{ CloseWrite() error } = (*connection)(nil)

// Connections have a number at most: one beyond them ends, those that are open go on, and one that ends makes room.
func TestListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") }), io.Discard)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(limit(l, 2))
	}()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		<-done
	})
	ask := func(conn net.Conn) error {
		_, _ = fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_, err = io.Copy(io.Discard, reply.Body)
		}
		return err
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first, second := dial(), dial()
	require.NoError(t, ask(first))
	require.NoError(t, ask(second))
	for range 3 {
		require.Error(t, ask(dial()))
	}
	require.NoError(t, ask(first))
	require.NoError(t, ask(second))
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return ask(dial()) == nil }, 10*time.Second, 10*time.Millisecond)
}

// A handler that says nothing is no exception.
func TestBodyThatNobodyReadsWithoutWords(t *testing.T) {
	conn, _ := serving(t, Options{}, func(http.ResponseWriter, *http.Request) {})
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
	data, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(data), "200 OK")
}

func TestBodyThatNeverComes(t *testing.T) {
	conn, ended := serving(t, Options{Read: 50 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	within(t, ended)
}

func within(t *testing.T, ended chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler holds its connection")
	}
}

// A reply that nobody reads ends the handler; so does one of many small pieces.
func TestReplyThatNobodyReads(t *testing.T) {
	for name, step := range map[string]int{"whole": 64 << 20, "pieces": 1000} {
		t.Run(name, func(t *testing.T) {
			conn, ended := serving(t, Options{Write: 50 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
				data := make([]byte, step)
				for n := 0; n < 64<<20; n += step {
					if _, err := w.Write(data); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
				}
			})
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			within(t, ended)
		})
	}
}

// Requests that are sent one after another without reading end, too: their small replies fill the buffers between.
func TestManyRepliesThatNobodyReads(t *testing.T) {
	conn, ended := serving(t, Options{Write: 50 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1000)) })
	go func() {
		for range ended { // there are as many as requests
		}
	}()
	request := bytes.Repeat([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 1000)
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(10*time.Second)))
	var err error
	for err == nil { // until the server hangs up
		_, err = conn.Write(request)
	}
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.False(t, timeout.Timeout(), "the server still holds the connection: %v", err)
}

// A connection goes on after a body that was read, and a reply may take longer than body and writes may.
func TestHonestClients(t *testing.T) {
	short := 50 * time.Millisecond
	conn, _ := serving(t, Options{Read: short, Write: short}, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(500)
		case <-time.After(4 * short):
			_, _ = w.Write(data)
		}
	})
	reader := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
		reply, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		data, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.Equal(t, "hi", string(data))
		require.False(t, reply.Close)
	}
}
