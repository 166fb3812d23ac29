package vllm

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// direct posts to one path of a server over HTTP/1.1 without TLS. A request is written and its reply read by the goroutine
// that asks: http.Transport hands both to two goroutines of each connection, which at some thousand requests a second is most
// of what they cost. Framing of replies is net/http's.
type direct struct {
	target  string // the URL
	address string // host:port
	head    []byte // of a request, up to the value of Content-Length, its last header
	dialer  net.Dialer

	mu   sync.Mutex
	idle []*directConn // oldest first
	most int           // kept idle
}

// directConn is a connection that one request at a time uses.
type directConn struct {
	net.Conn
	reader *bufio.Reader
	buffer []byte // of requests
	since  time.Time
}

// newDirect returns nil where http.Transport is needed: for https, or a proxy.
func newDirect(base, path string, o Options) *direct {
	target, err := url.Parse(base + path)
	if err != nil || target.Scheme != "http" || target.User != nil || o.Transport != nil || strings.ContainsFunc(o.APIKey, unicode.IsControl) {
		return nil // http.Client says what is wrong
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: target}); err != nil || proxy != nil {
		return nil
	}
	port := target.Port()
	if port == "" {
		port = "80"
	}
	head := "POST " + target.EscapedPath() + " HTTP/1.1\r\nHost: " + target.Host + "\r\nUser-Agent: agentfly\r\nContent-Type: application/json\r\n"
	if o.APIKey != "" {
		head += "Authorization: Bearer " + o.APIKey + "\r\n"
	}
	return &direct{
		target: target.String(), address: net.JoinHostPort(target.Hostname(), port), head: []byte(head + "Content-Length: "), most: o.InFlight,
		dialer: net.Dialer{Timeout: 30 * time.Second},
	}
}

// post sends what body appends and reads the reply into buffer. A request that a used connection did not take is sent again
// over another: the server may have closed it meanwhile. Errors are url.Error, as http.Client's.
func (d *direct) post(ctx context.Context, body func([]byte) []byte, buffer *bytes.Buffer) (status int, header http.Header, err error) {
	for {
		c, used := d.take(), true
		if c == nil {
			used = false
			raw, err := d.dialer.DialContext(ctx, "tcp", d.address)
			if err != nil {
				return 0, nil, d.failed(ctx, err)
			}
			c = &directConn{Conn: raw, reader: bufio.NewReader(raw)}
		}
		reply, answered, err := d.exchange(ctx, c, body, buffer)
		if err == nil {
			return reply.StatusCode, reply.Header, nil
		}
		if ctx.Err() != nil || !used || answered {
			return 0, nil, d.failed(ctx, err)
		}
	}
}

func (d *direct) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return &url.Error{Op: "Post", URL: d.target, Err: err}
}

// headRoom is kept free before a body, for the head that is known after it.
const headRoom = 1024

// exchange uses the connection for one request, and keeps or closes it. answered tells whether a reply began.
func (d *direct) exchange(ctx context.Context, c *directConn, body func([]byte) []byte, buffer *bytes.Buffer) (reply *http.Response, answered bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // ends what reads or writes
	keep := false
	defer func() {
		if !stop() || !keep || err != nil {
			_ = c.Close() // nothing of it is needed
			return
		}
		d.put(c)
	}()
	if _, err := c.Write(d.request(c, body)); err != nil {
		return nil, false, err
	}
	if _, err := c.reader.Peek(1); err != nil {
		return nil, false, err
	}
	for {
		if reply, err = http.ReadResponse(c.reader, nil); err != nil {
			return nil, true, err
		}
		if reply.StatusCode >= 200 { // the others come before the reply
			break
		}
	}
	defer reply.Body.Close()
	buffer.Reset()
	if err := readInto(buffer, reply.Body); err != nil {
		return nil, true, err
	}
	keep = !reply.Close && c.reader.Buffered() == 0
	return reply, true, nil
}

// request lays a request out in the connection's buffer.
func (d *direct) request(c *directConn, body func([]byte) []byte) []byte {
	room := max(headRoom, len(d.head)+32)
	if cap(c.buffer) < room {
		c.buffer = make([]byte, room, room+4096)
	}
	c.buffer = body(c.buffer[:room])
	head := append(append(make([]byte, 0, headRoom), d.head...), strconv.Itoa(len(c.buffer)-room)+"\r\n\r\n"...)
	start := room - len(head)
	copy(c.buffer[start:], head)
	return c.buffer[start:]
}

// take returns the idle connection that was used last, or nil.
func (d *direct) take() *directConn {
	d.prune()
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.idle)
	if n == 0 {
		return nil
	}
	c := d.idle[n-1]
	d.idle = d.idle[:n-1]
	return c
}

func (d *direct) put(c *directConn) {
	if cap(c.buffer) > mostBuffer {
		c.buffer = nil
	}
	c.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle) >= d.most {
		_ = c.Close()
		return
	}
	d.idle = append(d.idle, c)
}

// prune closes the connections that were idle for long.
func (d *direct) prune() { d.closeIdle(time.Now().Add(-idleConnections)) }

// closeIdle closes the connections that nobody used since.
func (d *direct) closeIdle(since time.Time) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.idle) && !d.idle[n].since.After(since) {
		_ = d.idle[n].Close()
		n++
	}
	if n > 0 {
		d.idle = append(d.idle[:0], d.idle[n:]...)
	}
}
