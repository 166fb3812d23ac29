package vllmtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// Serve answers on a listener until it is closed, and then ends its connections. It does what http.Server would with a Server
// without faults, for half the CPU: a connection is one goroutine, and a reply one write.
func (s *Server) Serve(l net.Listener) error {
	if s.options.Faults > 0 {
		return errors.New("vllmtest: faults need an http.Server")
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	open := map[net.Conn]bool{}
	defer func() {
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	}()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		open[c] = true
		mu.Unlock()
		all.Go(func() {
			s.converse(c)
			_ = c.Close()
			mu.Lock()
			delete(open, c)
			mu.Unlock()
		})
	}
}

// converse answers the requests of a connection, one after the other.
func (s *Server) converse(c net.Conn) {
	r := bufio.NewReaderSize(c, 2048)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if err := s.reply(c, q); err != nil || q.Close {
			return
		}
	}
}

func (s *Server) reply(c net.Conn, q *http.Request) error {
	key, bodies := s.route(q.URL.Path)
	if bodies == nil {
		return s.record(c, q)
	}
	b := s.buffers.Get().(*bytes.Buffer)
	defer s.buffers.Put(b)
	b.Reset()
	if _, err := b.ReadFrom(q.Body); err != nil {
		return err
	}
	turn, ok := s.turn(b.Bytes(), key)
	if !ok {
		q.Body = io.NopCloser(bytes.NewReader(bytes.Clone(b.Bytes())))
		return s.record(c, q)
	}
	s.requests.Add(1)
	time.Sleep(s.options.Delay)
	body := bodies[min(turn, len(bodies)-1)]
	b.Reset()
	fmt.Fprintf(b, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	_, err := c.Write(b.Bytes())
	return err
}

// record answers what is rare.
func (s *Server) record(c net.Conn, q *http.Request) error {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, q)
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return err
	}
	reply := w.Result()
	reply.ContentLength = int64(w.Body.Len())
	return reply.Write(c)
}
