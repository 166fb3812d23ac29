package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// told is a service with one request that runs.
type told struct {
	stop  context.CancelFunc
	ended chan error
	reply chan any // the text of the answer, or the error
}

// serve starts the service of a handler, which gets a channel that Abort closes, and asks it once.
func serve(t *testing.T, s Service, handler func(aborted chan struct{})) told {
	t.Helper()
	begun, aborted := make(chan struct{}), make(chan struct{})
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		handler(aborted)
		_, _ = io.WriteString(w, "whole")
	})
	s.Errors, s.Abort = io.Discard, func() { close(aborted) } // closing it twice would panic
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	out := told{stop, make(chan error, 1), make(chan any, 1)}
	go func() { out.ended <- s.Serve(ctx, l) }()
	go func() {
		response, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			out.reply <- err
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		out.reply <- string(text)
	}()
	<-begun
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		_, err := net.Dial("tcp", l.Addr().String())
		require.Error(t, err, "the listener is closed")
	})
	return out
}

// A request that ends within the grace is not aborted.
func TestServeGivesRunningRequestsTheirTime(t *testing.T) {
	finish := make(chan struct{})
	s := serve(t, Service{Grace: time.Minute}, func(aborted chan struct{}) {
		select {
		case <-finish:
		case <-aborted:
			t.Error("it was aborted in its grace")
		}
	})
	s.stop()
	close(finish)
	require.Equal(t, "whole", <-s.reply)
	require.NoError(t, <-s.ended)
}

// After the grace running requests are aborted, and may still answer.
func TestServeAbortsAfterTheGrace(t *testing.T) {
	s := serve(t, Service{Cut: time.Minute}, func(aborted chan struct{}) { <-aborted })
	s.stop()
	require.Equal(t, "whole", <-s.reply)
	require.NoError(t, <-s.ended)
}

// A request that runs on all the same loses its connection, and the error says so.
func TestServeCutsARequestThatRunsOn(t *testing.T) {
	gone := make(chan struct{})
	s := serve(t, Service{Cut: time.Millisecond}, func(chan struct{}) { <-gone })
	s.stop()
	err := <-s.ended
	require.ErrorIs(t, err, ErrLate)
	require.EqualError(t, err, "a request did not end in time: context deadline exceeded")
	require.Error(t, (<-s.reply).(error))
	close(gone)
}

// accepting tells of each connection that it has accepted.
type accepting struct {
	net.Listener
	accepted chan struct{}
}

func (l accepting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	return c, err
}

// A connection that no request came on, such as a browser's spare one, is no request that runs. net/http waits 5 s for it.
func TestServeWaitsForNoUnusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	accepted, ended := make(chan struct{}), make(chan error, 1)
	s := Service{Handler: http.NotFoundHandler(), Errors: io.Discard, Abort: func() {}, Cut: 4 * time.Second}
	go func() { ended <- s.Serve(ctx, accepting{l, accepted}) }()
	for _, sent := range []string{"", "GET / HTTP/1.1\r\nHost:"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, sent)
		require.NoError(t, err)
		<-accepted
	}
	stop()
	require.NoError(t, <-ended)
}

// A listener that fails ends the service with its error.
func TestServeEndsWithItsListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	err = Service{Errors: io.Discard}.Serve(t.Context(), l)
	require.ErrorIs(t, err, net.ErrClosed)
}
