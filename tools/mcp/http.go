package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// web is the HTTP side of one start: it adds the job's headers, keeps them from other hosts, bounds what it reads, and ends with it.
type web struct {
	base    *http.Transport
	headers map[string]string
	lasting context.Context // no request outlives it
	abort   context.CancelFunc
	refusal atomic.Value // string: why the last message was not taken, empty when it was
}

func newWeb(c config) *web {
	w := &web{base: http.DefaultTransport.(*http.Transport).Clone(), headers: c.Headers}
	w.lasting, w.abort = context.WithCancel(context.Background())
	return w
}

func (w *web) client() *http.Client {
	return &http.Client{Transport: w, CheckRedirect: func(next *http.Request, before []*http.Request) error {
		if next.URL.Host != before[0].URL.Host || next.URL.Scheme != before[0].URL.Scheme {
			return errors.New("it redirects to another host; give that one's URL")
		}
		if len(before) >= 5 {
			return errors.New("it redirects in circles")
		}
		return nil
	}}
}

func (w *web) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	stop := context.AfterFunc(w.lasting, cancel)
	over := func() {
		stop()
		cancel()
	}
	request = request.Clone(ctx)
	for name, value := range w.headers {
		request.Header.Set(name, value)
	}
	begun(ctx)
	response, err := w.base.RoundTrip(request)
	if err != nil {
		over()
		return nil, err
	}
	if request.Method == http.MethodPost {
		w.refusal.Store(refusal(response))
	}
	events := strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
	body := &exactBody{ReadCloser: &bounded{ReadCloser: response.Body, over: over, lines: events}}
	if events {
		body.lines = bufio.NewReader(body.ReadCloser)
	}
	response.Body, response.ContentLength = body, -1
	return response, nil
}

// refusal says why a response is none of an MCP server that took a message; empty: it is one.
func refusal(response *http.Response) string {
	kind := response.Header.Get("Content-Type")
	switch {
	case response.StatusCode >= http.StatusBadRequest:
		return "it answered " + response.Status
	case response.StatusCode == http.StatusOK && !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "text/event-stream"):
		return fmt.Sprintf("it answered with %q, which is no MCP message", kind)
	}
	return ""
}

func (w *web) close() {
	w.abort()
	w.base.CloseIdleConnections()
}

// bounded is a body that must not exceed maxMessage bytes, or, as a stream of events, not in one line.
type bounded struct {
	io.ReadCloser
	over  func()
	lines bool
	count int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count += n
	if b.lines {
		if end := bytes.LastIndexByte(p[:n], '\n'); end >= 0 {
			b.count = n - end - 1
		}
	}
	if b.count > maxMessage {
		return 0, fmt.Errorf("mcp: %w", errTooLarge)
	}
	return n, err
}

func (b *bounded) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}
