package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

// counter counts the calls of each trajectory.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
	ended []string
}

func (*counter) Spec() tools.Spec {
	return tools.Spec{Name: "count", Description: "Counts.", Parameters: json.RawMessage(`{"type":"object","properties":{"by":{"type":"integer"}},"required":["by"]}`)}
}

func (c *counter) Call(_ context.Context, call tools.Call) (tools.Observation, error) {
	var arguments struct{ By int }
	if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
		return tools.Observation{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call.Trajectory] += arguments.By
	b, err := json.Marshal(c.calls[call.Trajectory])
	return tools.Observation{Text: string(b)}, err
}

func (c *counter) End(trajectory string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, trajectory)
	c.ended = append(c.ended, trajectory)
}

func count(t *testing.T, session *sdk.ClientSession, by int) *sdk.CallToolResult {
	t.Helper()
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "count", Arguments: map[string]any{"by": by}})
	require.NoError(t, err)
	return r
}

func text(t *testing.T, r *sdk.CallToolResult) string {
	t.Helper()
	require.Len(t, r.Content, 1)
	return r.Content[0].(*sdk.TextContent).Text
}

func served(t *testing.T) (*counter, *Server) {
	t.Helper()
	c := &counter{calls: map[string]int{}}
	r := tools.NewRegistry(tools.Options{})
	require.NoError(t, r.Register(c))
	s, err := NewServer(r, "1.2.3", ServerOptions{})
	require.NoError(t, err)
	return c, s
}

func client() *sdk.Client { return sdk.NewClient(&sdk.Implementation{Name: "test"}, nil) }

func TestServeStdio(t *testing.T) {
	c, s := served(t)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeStdio(t.Context(), in, out) }()
	session, err := client().Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	require.NoError(t, err)
	require.Equal(t, "1.2.3", session.InitializeResult().ServerInfo.Version)
	offers, err := list(t.Context(), session)
	require.NoError(t, err)
	require.Len(t, offers, 1)
	require.Equal(t, "Counts.", offers[0].Description)
	require.JSONEq(t, `{"type":"object","properties":{"by":{"type":"integer"}},"required":["by"]}`, string(offers[0].Parameters))
	require.Equal(t, "2", text(t, count(t, session, 2)))
	require.Equal(t, "5", text(t, count(t, session, 3)))
	wrong, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "count"})
	require.NoError(t, err)
	require.True(t, wrong.IsError)
	require.Equal(t, `Error: count: the argument "by" is missing; the arguments are {"by": integer}`, text(t, wrong))
	require.NoError(t, session.Close())
	require.NoError(t, <-ended)
	require.Equal(t, []string{"mcp"}, c.ended)
	require.NoError(t, s.Close())
}

func TestServeStdioUntilItIsInterrupted(t *testing.T) {
	c, s := served(t)
	ctx, cancel := context.WithCancel(t.Context())
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeStdio(ctx, in, out) }()
	session, err := client().Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	require.NoError(t, err)
	require.Equal(t, "2", text(t, count(t, session, 2)))
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"mcp"}, c.ended)
	_ = session.Close()
	require.NoError(t, s.Close())
}

// Each session over HTTP has a state of its own, which is gone with it.
func TestServeHTTP(t *testing.T) {
	c, s := served(t)
	site := httptest.NewServer(s)
	defer site.Close()
	var sessions []*sdk.ClientSession
	for range 3 {
		session, err := client().Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: site.URL, HTTPClient: site.Client()}, nil)
		require.NoError(t, err)
		require.Equal(t, "1", text(t, count(t, session, 1)))
		require.Equal(t, "2", text(t, count(t, session, 1)))
		sessions = append(sessions, session)
	}
	require.Len(t, c.calls, 3)
	require.NoError(t, sessions[0].Close())
	require.NoError(t, s.Close())
	require.Empty(t, c.calls)
	require.Len(t, c.ended, 3)
	for _, session := range sessions[1:] {
		_ = session.Close()
	}
}

// The state of a session whose client calls without having sent notifications/initialized is gone with it too, and a server that was closed takes no call.
func TestServeHTTPWithoutInitialized(t *testing.T) {
	c, s := served(t)
	site := httptest.NewServer(s)
	defer site.Close()
	send := func(method, session, body string) (id, text string) {
		request, err := http.NewRequestWithContext(t.Context(), method, site.URL, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			request.Header.Set("Mcp-Session-Id", session)
		}
		response, err := site.Client().Do(request)
		require.NoError(t, err)
		data, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.Header.Get("Mcp-Session-Id"), string(data)
	}
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count","arguments":{"by":1}}}`
	for _, deleted := range []bool{true, false} {
		session, _ := send(http.MethodPost, "", begin)
		for _, want := range []string{`"text":"1"`, `"text":"2"`} {
			_, text := send(http.MethodPost, session, call)
			require.Contains(t, text, want)
		}
		if deleted {
			send(http.MethodDelete, session, "")
		}
	}
	require.NoError(t, s.Close())
	require.Empty(t, c.calls)
	require.Len(t, c.ended, 2)
	session, _ := send(http.MethodPost, "", begin)
	_, text := send(http.MethodPost, session, call)
	require.Contains(t, text, "the server is about to end")
	require.Empty(t, c.calls)
	send(http.MethodDelete, session, "")
}

func TestNothingToServe(t *testing.T) {
	_, err := NewServer(tools.NewRegistry(tools.Options{}), "1", ServerOptions{})
	require.EqualError(t, err, "mcp: there is no tool to serve")
}

// Sessions have a number at most, and idle ones end by themselves.
func TestServeBoundsSessions(t *testing.T) {
	c := &counter{calls: map[string]int{}}
	r := tools.NewRegistry(tools.Options{})
	require.NoError(t, r.Register(c))
	s, err := NewServer(r, "1.2.3", ServerOptions{MaxSessions: 2, Idle: 3 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	web := httptest.NewServer(s)
	defer web.Close()
	begin := func() *http.Response {
		const body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		response, err := web.Client().Do(request)
		require.NoError(t, err)
		data, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		if response.StatusCode == http.StatusServiceUnavailable {
			require.Contains(t, string(data), "2 sessions are open")
		}
		return response
	}
	first := begin()
	require.Equal(t, http.StatusOK, first.StatusCode)
	require.Equal(t, http.StatusOK, begin().StatusCode)
	require.Equal(t, http.StatusServiceUnavailable, begin().StatusCode)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, web.URL, nil)
	require.NoError(t, err)
	request.Header.Set("Mcp-Session-Id", first.Header.Get("Mcp-Session-Id"))
	response, err := web.Client().Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, begin().StatusCode, "one has ended")
	require.Equal(t, http.StatusServiceUnavailable, begin().StatusCode)
	require.Eventually(t, func() bool { return begin().StatusCode == http.StatusOK }, time.Minute, 20*time.Millisecond, "idle ones end")
}

// A server that offers without end is refused, whatever it says of the next page.
func TestListIsBounded(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "many", Version: "1"}, &sdk.ServerOptions{PageSize: 100})
	for i := range maxOffers + 1 {
		server.AddTool(&sdk.Tool{Name: fmt.Sprintf("t%d", i), InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return nil, nil })
	}
	here, there := sdk.NewInMemoryTransports()
	other, err := server.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	defer other.Close()
	session, err := client().Connect(t.Context(), here, nil)
	require.NoError(t, err)
	defer session.Close()
	_, err = list(t.Context(), session)
	require.ErrorContains(t, err, "it offers more than 1000 tools")
	server.RemoveTools("t0")
	offers, err := list(t.Context(), session)
	require.NoError(t, err)
	require.Len(t, offers, maxOffers)
}
