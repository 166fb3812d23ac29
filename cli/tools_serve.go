package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/mcp"
)

// serveCommand offers tools to other programs.
func (c toolCommands) serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "offer tools over MCP: all, or those that are named, or those of Python files", ArgsUsage: "[NAME|FILE.py …]", Action: c.serve,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "http", Usage: "listen on `ADDRESS`, such as 127.0.0.1:8090, instead of standard input and output; one that is not this machine's own needs an API key"},
			&cli.StringFlag{Name: "api-key", EnvVars: []string{"AGENTFLY_API_KEY"}, Usage: "`KEY` that requests over HTTP must bear"},
			&cli.IntFlag{Name: "max-sessions", Value: 256, Usage: "sessions over HTTP at once; more are refused with status 503"},
			&cli.IntFlag{Name: "session-timeout", Value: 3600, Usage: "seconds after which a session over HTTP ends that sends nothing"},
		},
	}
}

func (c toolCommands) serve(x *cli.Context) (err error) {
	if err := checkAddress(x.String("http"), x.String("api-key")); err != nil {
		return err
	}
	for _, flag := range []string{"max-sessions", "session-timeout"} {
		if x.Int(flag) < 1 {
			return usagef("--%s is %d; it must be at least 1", flag, x.Int(flag))
		}
	}
	shared := resources.New(resources.Options{Warn: func(text string) { fmt.Fprintln(c.errOut, "agentfly: "+text) }})
	defer func() { err = errors.Join(err, shared.Close()) }()
	registry, err := c.served(x.Context, shared, x.Args().Slice())
	if err != nil {
		return err
	}
	server, err := mcp.NewServer(registry, c.version, mcp.ServerOptions{
		MaxSessions: x.Int("max-sessions"), Idle: time.Duration(x.Int("session-timeout")) * time.Second,
	})
	if err != nil {
		return err
	}
	defer server.Close()
	if x.String("http") == "" {
		return server.ServeStdio(x.Context, io.NopCloser(c.in), nopCloser{c.out})
	}
	return c.listen(x, server)
}

// served makes the tools that the arguments name; all of the catalog for none.
func (c toolCommands) served(ctx context.Context, shared *resources.Resources, names []string) (*tools.Registry, error) {
	registry := tools.NewRegistry(tools.Options{})
	all := len(names) == 0
	if all {
		names = c.registries.Tools.Names()
	}
	for _, name := range names {
		ref := tools.Ref{Name: name}
		if strings.HasSuffix(name, ".py") {
			ref = tools.Ref{Source: "python", Params: map[string]any{"python": name}}
		}
		made, err := c.registries.Tools.Make(ctx, shared, ref)
		if err != nil && all { // it needs parameters that only a job gives, or something that this machine lacks
			fmt.Fprintf(c.errOut, "agentfly: %s is left out: %v\n", name, err)
			continue
		}
		if err == nil {
			err = registry.Register(made...)
		}
		if err != nil {
			return nil, usagef("%v", err)
		}
	}
	return registry, nil
}

func checkAddress(address, key string) error {
	if address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--http %s: allowed is HOST:PORT, such as 127.0.0.1:8090", address)
	}
	if err := httpserver.CheckKey(address, host, key); err != nil {
		return usagef("--http %v", err)
	}
	return nil
}

// listen answers streamable HTTP until the context ends.
func (c toolCommands) listen(x *cli.Context, tools *mcp.Server) error {
	listener, err := net.Listen("tcp", x.String("http"))
	if err != nil {
		return fmt.Errorf("tools: serve: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", bearing(x.String("api-key"), tools))
	fmt.Fprintf(c.text, "serving tools on http://%s/mcp\n", listener.Addr())
	var closed error
	service := httpserver.Service{ // without grace: streams of events end only with their sessions
		Handler: httpserver.Handler(mux, httpserver.Options{}), Errors: c.errOut, Abort: func() { closed = tools.Close() },
	}
	err = service.Serve(x.Context, listener)
	if err != nil && !errors.Is(err, httpserver.ErrLate) { // a call that runs on ends with the process
		return fmt.Errorf("tools: serve: %w", err)
	}
	return closed
}

// bearing lets requests through that bear the key; all for none.
func bearing(key string, next http.Handler) http.Handler {
	if key == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpserver.Bears(r, key) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close") // who has no key keeps no connection
			http.Error(w, "the API key is missing or wrong", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// nopCloser leaves what it writes to open.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
