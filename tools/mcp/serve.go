package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Server offers the tools of a registry over MCP. A session of a client is a trajectory: tools keep its state until it ends.
type Server struct {
	registry *tools.Registry
	server   *sdk.Server
	handler  http.Handler
	most     int // sessions at once
	mu       sync.Mutex
	closed   bool
	followed map[*sdk.ServerSession]bool // those over HTTP that called, whose end ends their trajectory
	sessions sync.WaitGroup              // of them
}

// ServerOptions bound the sessions over HTTP, each of which keeps the state of its tools: a workspace, a sandbox.
type ServerOptions struct {
	MaxSessions int           // at once; more are refused with status 503; 0: 256
	Idle        time.Duration // after which a session ends that sends nothing; 0: an hour
}

// NewServer offers the tools under a name and a version of the program.
func NewServer(r *tools.Registry, version string, o ServerOptions) (*Server, error) {
	if o.MaxSessions == 0 {
		o.MaxSessions = 256
	}
	if o.Idle == 0 {
		o.Idle = time.Hour
	}
	s := &Server{registry: r, most: o.MaxSessions, followed: map[*sdk.ServerSession]bool{}}
	s.server = sdk.NewServer(&sdk.Implementation{Name: "agentfly", Version: version}, &sdk.ServerOptions{
		Logger: slog.New(slog.DiscardHandler), Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // the tools stay the same
	})
	specs := r.Specs()
	if len(specs) == 0 {
		return nil, errNoTools
	}
	for _, spec := range specs {
		parameters := spec.Parameters
		s.server.AddTool(&sdk.Tool{
			Name: spec.Name, Description: spec.Description, InputSchema: parameters,
			Annotations: &sdk.ToolAnnotations{
				IdempotentHint: spec.Idempotent, ReadOnlyHint: spec.Deterministic && !spec.Stateful && !spec.Writes, // what may be kept need not run
			},
		}, s.call)
	}
	s.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, &sdk.StreamableHTTPOptions{
		Logger: slog.New(slog.DiscardHandler), SessionTimeout: o.Idle,
	})
	return s, nil
}

// ServeHTTP answers streamable HTTP. A request that names no session begins one.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
		open := 0
		for range s.server.Sessions() {
			open++
		}
		if open >= s.most {
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d sessions are open, and no more are allowed; end one with DELETE, or try again later", open), http.StatusServiceUnavailable)
			return
		}
	}
	s.handler.ServeHTTP(w, r)
}

// ServeStdio answers one client until it ends its input or ctx is done.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	session, err := s.server.Connect(ctx, &sdk.IOTransport{Reader: in, Writer: out}, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	err = session.Wait()
	s.registry.End(trajectoryOf(session))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Close ends the sessions over HTTP and waits until their state is gone.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for session := range s.server.Sessions() {
		_ = session.Close() // it may be gone already
	}
	s.sessions.Wait()
	return nil
}

// follow has the end of a session over HTTP end its trajectory, from its first call on: there is no state before. ServeStdio ends that of its own session.
// It fails where the server is closed.
func (s *Server) follow(session *sdk.ServerSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("the server is about to end")
	case s.followed[session] || session.ID() == "":
		return nil
	}
	s.followed[session] = true
	s.sessions.Go(func() {
		_ = session.Wait() // why it ended does not matter to the tools
		s.registry.End(trajectoryOf(session))
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followed, session)
	})
	return nil
}

// trajectoryOf names a session to the tools. One over standard input has no name, and there is only one.
func trajectoryOf(session *sdk.ServerSession) string {
	if id := session.ID(); id != "" {
		return "mcp-" + id
	}
	return "mcp"
}

func (s *Server) call(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if err := s.follow(request.Session); err != nil {
		return nil, err
	}
	call := trajectory.ToolCall{Name: request.Params.Name, Arguments: request.Params.Arguments}
	result := s.registry.Invoke(ctx, trajectoryOf(request.Session), call)
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: result.Observation}}, IsError: result.Failed}, nil
}
