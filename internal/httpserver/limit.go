// Package httpserver is what the program's HTTP servers share. A Service listens until it is told to stop, and then lets running requests
// end. CheckKey and Bears decide who may ask. Handler bounds how long a client may hold a connection: by a body that it does not send,
// and by a reply that it does not read. net/http has deadlines for a whole request and a whole reply alone, which a long
// completion or a stream of events would break; the deadlines here end with the body, and begin anew with every write.
// Routes and replies are the servers' own.
package httpserver

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options are the times of a handler.
type Options struct {
	Read  time.Duration // for the whole body of a request; 0: 60 s
	Write time.Duration // for each piece of a reply, at most 64 KiB; 0: 30 s
}

const (
	piece  = 64 << 10    // bytes that are written under one deadline
	linger = time.Second // for the rest of a body that nobody reads, so that its client sees the reply and no reset
)

// Handler puts deadlines on the bodies and the replies of next. A request that is answered before its body was read
// whole gets its reply at once, and its connection is closed after it.
func Handler(next http.Handler, o Options) http.Handler {
	if o.Read == 0 {
		o.Read = time.Minute
	}
	if o.Write == 0 {
		o.Write = 30 * time.Second
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &writer{ResponseWriter: w, control: http.NewResponseController(w), timeout: o.Write}
		if r.Body != nil && r.Body != http.NoBody {
			out.body = &body{ReadCloser: r.Body, control: out.control}
			_ = out.control.SetReadDeadline(time.Now().Add(o.Read)) // a writer without deadlines is a test's
			r = r.WithContext(r.Context())                          // net/http goes on with its own copy
			r.Body = out.body
		}
		defer func() {
			out.begin()
			if out.unread() {
				_ = out.control.SetReadDeadline(time.Now().Add(linger))
			}
			_ = out.control.SetWriteDeadline(time.Now().Add(out.timeout)) // of what is buffered; net/http ends it
		}()
		next.ServeHTTP(out, r)
	})
}

// maxConnections is how many connections a server of this program has at once.
const maxConnections = 4096

// limit accepts as many connections as most at once. One beyond them is closed: those that are open go on, and the program keeps files
// for its own work.
func limit(l net.Listener, most int) net.Listener {
	return &listener{Listener: l, places: make(chan struct{}, most)}
}

type listener struct {
	net.Listener
	places chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &connection{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = conn.Close() // its client learns of it
		}
	}
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	leave func()
}

func (c *connection) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite is what net/http calls where the rest of a request may still come: a client that is answered early sees the reply and no reset.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// body knows whether it was read to its end; the deadline ends with it, or the connection would look broken in mid-reply.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	ended   bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// writer gives every piece of a reply a deadline.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	body    *body // nil: the request has none
	begun   bool
}

// Unwrap lets an http.ResponseController find the writer below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) unread() bool { return w.body != nil && !w.body.ended }

// begin closes a connection on which the rest of a body may come: net/http would wait for that rest before the reply.
func (w *writer) begin() {
	if !w.begun && w.unread() {
		w.Header().Set("Connection", "close")
	}
	w.begun = true
}

func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK { // not of a reply that only announces one
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (n int, err error) {
	w.begin()
	for first := true; first || n < len(p) && err == nil; first = false {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
		var m int
		m, err = w.ResponseWriter.Write(p[n:min(len(p), n+piece)])
		n += m
	}
	return n, err
}

// FlushError is what an http.ResponseController calls.
func (w *writer) FlushError() error {
	w.begin()
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	return w.control.Flush()
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }
