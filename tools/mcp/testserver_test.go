package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/internal/sysmon"
)

// TestMain lets the test binary be a server over stdio: a real process, made with the library's own server.
func TestMain(m *testing.M) {
	kind := os.Getenv("MCP_TEST_SERVER")
	if kind == "" {
		goleak.VerifyTestMain(m)
	}
	sysmon.KeepAwake()
	switch kind {
	case "tools", "banner":
		if kind == "banner" {
			fmt.Print(garbage)
		}
		if err := newTestServer(func(context.Context) { select {} }).Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "late": // it removes a tool between the first list and the subscription to changes
		server := newTestServer(nil)
		listed := make(chan struct{})
		tell := sync.OnceFunc(func() { close(listed) })
		server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
				if method == "subscriptions/listen" {
					<-listed
					server.RemoveTools("add")
					time.Sleep(100 * time.Millisecond) // ten times as long as the library keeps a change back
				}
				result, err := next(ctx, method, request)
				if method == "tools/list" {
					tell()
				}
				return result, err
			}
		})
		_ = server.Run(context.Background(), &sdk.StdioTransport{})
	case "owner":
		fmt.Fprintln(os.Stderr, ownServer())
		os.Exit(1)
	case "none":
		_ = sdk.NewServer(&sdk.Implementation{Name: "none"}, &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}}).Run(context.Background(), &sdk.StdioTransport{})
	case "exit":
		fmt.Fprintln(os.Stderr, "reading the settings\nno licence was found")
		os.Exit(7)
	case "silent":
		fmt.Fprintln(os.Stderr, "loading")
		time.Sleep(time.Hour)
	}
}

// ownServer stands for agentfly: it opens a server, has it start processes, tells their numbers, and waits to be killed.
func ownServer() error {
	s, err := open(context.Background(), command("tools"), usual, func(string) {})
	if err != nil {
		return err
	}
	children, err := s.call(context.Background(), "spawn", nil)
	if err != nil {
		return err
	}
	fmt.Println(children.Text)
	time.Sleep(time.Hour)
	return nil
}

// garbage is what servers write beside messages: logs, bytes that are no text, JSON that is no message, an answer that nobody asked for.
var garbage = "this is no message\n\n\xff\xfe\x00\n\x1b[32mready\x1b[0m\r\n{\"level\": \"info\"}\n[1, 2]\n42\nnull\n{\"jsonrpc\": \"2.0\"\n" +
	`{"jsonrpc": "2.0", "id": 987654, "result": {}}` + "\n" + `{"jsonrpc": "2.0", "method": "notifications/unheardof"}` + "\n" + strings.Repeat("x", 1<<20) + "\n"

// command is that of this binary as a server.
func command(kind string) config {
	return config{Command: []string{os.Args[0]}, Env: map[string]string{"MCP_TEST_SERVER": kind}}
}

type testTool struct {
	name, schema string
	run          func(arguments map[string]any) (*sdk.CallToolResult, error)
}

func said(format string, args ...any) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil
}

// gate holds calls until a number of them are there.
type gate struct {
	mu   sync.Mutex
	here int
	open chan struct{}
}

func (g *gate) wait(n int) {
	g.mu.Lock()
	g.here++
	if g.here == n {
		close(g.open)
	}
	g.mu.Unlock()
	<-g.open
}

// newTestServer is one whose tool hang does what it is told.
func newTestServer(hang func(ctx context.Context)) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	door := &gate{open: make(chan struct{})}
	add := func(t testTool) {
		server.AddTool(&sdk.Tool{Name: t.name, Description: "Tool " + t.name + ".", InputSchema: json.RawMessage(t.schema)},
			func(_ context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				var arguments map[string]any
				if err := json.Unmarshal(request.Params.Arguments, &arguments); err != nil {
					return nil, err
				}
				return t.run(arguments)
			})
	}
	const nothing, number = `{"type":"object"}`, `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	const text = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`
	number64 := func(a map[string]any) int { return int(a["n"].(float64)) }
	for _, t := range []testTool{
		{"add", `{"type":"object","properties":{"b":{"type":"integer","description":"second"},"a":{"type":"integer"}},"required":["b","a"]}`, func(a map[string]any) (*sdk.CallToolResult, error) {
			r, _ := said("%v", a["a"].(float64)+a["b"].(float64))
			r.StructuredContent = map[string]any{"sum": a["a"].(float64) + a["b"].(float64)}
			return r, nil
		}},
		{"structured", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{}, StructuredContent: json.RawMessage(`{"id": 1234567890123456789, "tag": "<a&b>"}`)}, nil
		}},
		{"parts", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: "one"},
				&sdk.ImageContent{MIMEType: "image/png", Data: []byte{1, 2, 3}},
				&sdk.ImageContent{MIMEType: "image/png", Data: []byte{4}},
				&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte{5}},
				&sdk.ResourceLink{URI: "file:///a", Name: "a", Description: "first"},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///b", Text: "two"}},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///c", Blob: []byte{6, 7}}},
			}}, nil
		}},
		{"fail", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			r, err := said("the city is unknown")
			r.IsError = true
			return r, err
		}},
		{"deny", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			r, err := said("GET /v1/items is allowed, not:\n  /srv/data/items")
			r.IsError = true
			return r, err
		}},
		{"refuse", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "n must be even"}
		}},
		{"internal", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the disk is full"}
		}},
		{"crash", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			fmt.Fprintln(os.Stderr, "boom")
			os.Exit(3)
			return nil, nil
		}},
		{"freeze", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {} // the signal may arrive a little later
		}},
		{"gate", number, func(a map[string]any) (*sdk.CallToolResult, error) {
			door.wait(number64(a))
			return said("open")
		}},
		{"waiting", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			door.mu.Lock()
			defer door.mu.Unlock()
			return said("%d", door.here)
		}},
		{"pid", nothing, func(map[string]any) (*sdk.CallToolResult, error) { return said("%d", os.Getpid()) }},
		{"env", text, func(a map[string]any) (*sdk.CallToolResult, error) { return said("%s", os.Getenv(a["text"].(string))) }},
		{"cwd", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			dir, err := os.Getwd()
			if err != nil {
				return nil, err
			}
			return said("%s", dir)
		}},
		{"big", number, func(a map[string]any) (*sdk.CallToolResult, error) {
			return said("%s", strings.Repeat("x", number64(a)))
		}},
		{"noise", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
			fmt.Print(garbage)
			return said("quiet")
		}},
		{"spawn", nothing, func(map[string]any) (*sdk.CallToolResult, error) { return twoChildren() }},
		{"dotted.name", nothing, func(map[string]any) (*sdk.CallToolResult, error) { return said("dotted") }},
	} {
		add(t)
	}
	server.AddTool(&sdk.Tool{Name: "hang", InputSchema: json.RawMessage(nothing)}, func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		hang(ctx)
		return nil, ctx.Err()
	})
	add(testTool{"change", nothing, func(map[string]any) (*sdk.CallToolResult, error) {
		server.RemoveTools("add")
		return said("changed")
	}})
	return server
}

// twoChildren starts one process in the server's group and one in a session of its own, both with the server's output open.
func twoChildren() (*sdk.CallToolResult, error) {
	var pids []string
	for _, setsid := range []bool{false, true} {
		c := exec.Command("sleep", "1000")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		if err := c.Start(); err != nil {
			return nil, err
		}
		pids = append(pids, fmt.Sprint(c.Process.Pid))
	}
	return said("%s", strings.Join(pids, " "))
}
