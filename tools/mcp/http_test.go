package mcp

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// site is a server over HTTP that can be stopped and started at the same address, without its sessions.
type site struct {
	t       *testing.T
	address string
	server  *http.Server
	ended   chan struct{}
	close   func() // ends the sessions
	mu      sync.Mutex
	headers []http.Header
}

func newSite(t *testing.T) *site {
	s := &site{t: t, address: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *site) start() {
	listener, err := net.Listen("tcp", s.address)
	require.NoError(s.t, err)
	s.address = listener.Addr().String()
	let := make(chan struct{}) // a cancellation may be lost with the connection
	server := newTestServer(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-let:
		}
	})
	end := sync.OnceFunc(func() { close(let) })
	s.close = func() {
		end()
		for session := range server.Sessions() {
			_ = session.Close()
		}
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.headers = append(s.headers, r.Header.Clone())
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	})}
	ended := make(chan struct{})
	s.ended = ended
	serving := s.server
	go func() {
		defer close(ended)
		_ = serving.Serve(listener)
	}()
}

func (s *site) stop() {
	_ = s.server.Close()
	<-s.ended
	s.close()
}

func (s *site) config() config {
	return config{URL: "http://" + s.address + "/mcp", Headers: map[string]string{"Authorization": "Bearer key", "X-Team": "a"}}
}

func TestServerOverHTTP(t *testing.T) {
	at := newSite(t)
	s := openTest(t, at.config(), quick)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
	o, err := s.call(t.Context(), "parts", nil)
	require.NoError(t, err)
	require.Equal(t, "data:image/png;base64,AQID", o.Image)
	o, err = s.call(t.Context(), "structured", nil)
	require.NoError(t, err)
	require.Equal(t, structuredObservation, o)
	_, err = s.call(t.Context(), "fail", nil)
	require.EqualError(t, err, "the city is unknown")
	_, err = s.call(t.Context(), "refuse", nil)
	require.EqualError(t, err, "n must be even")
	at.mu.Lock()
	for _, h := range at.headers {
		require.Equal(t, "Bearer key", h.Get("Authorization"))
		require.Equal(t, "a", h.Get("X-Team"))
	}
	require.NotEmpty(t, at.headers)
	at.mu.Unlock()

	r := registryOf(t, s, tools.Options{Timeout: time.Minute})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { require.Equal(t, "open", invoke(t, r, "gate", `{"n": 50}`).Observation) })
	}
	wg.Wait()

	require.Equal(t, "changed", ask(t, s, "change", ""))
	require.Eventually(t, func() bool {
		_, err := s.call(t.Context(), "add", json.RawMessage(`{"a":1,"b":2}`))
		return err != nil
	}, 20*time.Second, time.Millisecond)
}

func TestHTTPServerThatIsStartedAgain(t *testing.T) {
	at := newSite(t)
	s := openTest(t, at.config(), quick)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
	at.stop()
	_, err := s.call(t.Context(), "add", json.RawMessage(`{"a":1,"b":2}`))
	var broken *tools.BrokenError
	require.ErrorAs(t, err, &broken)
	at.start()
	require.Eventually(t, func() bool {
		o, err := s.call(t.Context(), "add", json.RawMessage(`{"a":1,"b":2}`))
		return err == nil && o.Text == "3"
	}, 20*time.Second, time.Millisecond)
}

func TestHTTPHang(t *testing.T) {
	at := newSite(t)
	s := openTest(t, at.config(), quick)
	r := registryOf(t, s, tools.Options{Timeout: 300 * time.Millisecond})
	require.Equal(t, trajectory.CauseBroken, invoke(t, r, "hang", `{}`).Cause)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
}

func TestHTTPStartErrors(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the headers must not go to another host") }))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "Unauthorized"},
		"a web page":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "text/html"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "it redirects to another host; give that one's URL"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			_, err := open(t.Context(), config{URL: server.URL, Headers: map[string]string{"Authorization": "Bearer key"}}, quick, nil)
			require.ErrorContains(t, err, c.want)
		})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, err = open(t.Context(), config{URL: "http://" + listener.Addr().String()}, quick, nil)
	require.ErrorContains(t, err, "connection refused")

	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees the end of the request's connection only then
		<-r.Context().Done()
	}))
	defer silent.Close()
	b := quick
	b.start = 300 * time.Millisecond
	_, err = open(context.Background(), config{URL: silent.URL}, b, nil)
	require.EqualError(t, err, silent.URL+": the server did not say what it offers within 300ms")
}

// The library may have closed the connection before it says what the server answered.
func TestAClosedConnectionKeepsItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		kind, want string
	}{
		"unauthorized": {http.StatusUnauthorized, "text/plain", "http://a: it answered 401 Unauthorized"},
		"a web page":   {http.StatusOK, "text/html", `http://a: it answered with "text/html", which is no MCP message`},
		"an answer":    {http.StatusOK, "application/json", "http://a: connection closed"},
		"a stream":     {http.StatusOK, "text/event-stream; charset=utf-8", "http://a: connection closed"},
		"taken":        {http.StatusAccepted, "", "http://a: connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
			}))
			defer site.Close()
			l := &connection{web: newWeb(config{})}
			defer l.web.close()
			answer, err := l.web.client().Post(site.URL, "application/json", nil)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			s := &server{config: config{URL: "http://a"}}
			require.EqualError(t, s.startError(t.Context(), t.Context(), l, sdk.ErrConnectionClosed), c.want)
		})
	}
}

func TestHTTPResponseThatIsTooLarge(t *testing.T) {
	at := newSite(t)
	s := openTest(t, at.config(), quick)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.call(ctx, "big", json.RawMessage(`{"n": 17000000}`))
	require.Error(t, err)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
}
