package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Service is what a command of this program serves until it is told to stop.
type Service struct {
	Handler http.Handler  // with the deadlines of Handler on bodies and replies
	Errors  io.Writer     // gets what net/http says of broken requests and panics
	Grace   time.Duration // that running requests get at the end
	Abort   func()        // is called after it, once, and makes the requests that still run end
	Cut     time.Duration // after Abort, until the connections of those that run on are closed; 0: 5 s
}

// ErrLate is the error of Serve when the connections of running requests had to be closed.
var ErrLate = errors.New("a request did not end in time")

// Serve answers on a listener, which it closes, with maxConnections at most at once. It returns when ctx ends and the requests have, or
// when the listener fails; then Abort is not called.
func (s Service) Serve(ctx context.Context, l net.Listener) error {
	server := newServer(s.Handler, s.Errors)
	fresh := unused{conns: map[net.Conn]struct{}{}}
	server.ConnState = fresh.changed
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(limit(l, maxConnections)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	fresh.close()
	err := shutdown(server, s.Grace)
	s.Abort()
	if err != nil { // some still run
		cut := s.Cut
		if cut == 0 {
			cut = 5 * time.Second
		}
		if err = shutdown(server, cut); err != nil {
			err = fmt.Errorf("%w: %w", ErrLate, errors.Join(err, server.Close()))
		}
	}
	<-ended
	return err
}

// unused are the connections that no request was read from, such as the spare ones of a browser. net/http takes them for requests that run,
// for 5 s.
type unused struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool // those that come are closed at once
}

// changed is what net/http tells of a connection.
func (u *unused) changed(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		_ = c.Close() // nothing was asked on it
	default:
		u.conns[c] = struct{}{}
	}
}

func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close() // nothing was asked on it
	}
}

// shutdown accepts no more connections and waits for the requests that run.
func shutdown(server *http.Server, most time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return server.Shutdown(ctx)
}

// newServer is an HTTP server whose clients have 10 seconds for a request's header and may keep a connection idle for
// two minutes.
func newServer(h http.Handler, errs io.Writer) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: log.New(errs, "", log.LstdFlags),
	}
}
