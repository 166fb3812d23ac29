package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
)

func TestMCPToolLearnsAsTheToolItselfDoes(t *testing.T) {
	needTorch(t)
	onPath(t)
	train := func(job string, args ...string) ([]float64, []byte) {
		dir := filepath.Join(t.TempDir(), "run")
		status, out, errs := command("", append([]string{"train", "--output", dir}, append(args, job)...)...)
		require.Zero(t, status, "%s%s", out, errs)
		return curve(t, dir)
	}
	rewards, weights := train("examples/mcp_tool.yaml")
	require.Greater(t, last(rewards, 5), 0.9, "the reward must rise: %v", rewards)
	require.Less(t, rewards[0], 0.4)
	direct, sameWeights := train("examples/tiny.yaml")
	require.Equal(t, direct, rewards)
	require.True(t, bytes.Equal(weights, sameWeights), "the final weights differ")
	shuffled, _ := train("examples/mcp_tool.yaml", "--set", "control.shuffle_rewards=true")
	require.Less(t, last(shuffled, 5), 0.3, "with shuffled rewards there is nothing to learn: %v", shuffled)
}

// A secret of a server's environment or headers stays out of what the run keeps.
func TestMCPJobKeepsSecrets(t *testing.T) {
	t.Setenv("MCP_TEST_KEY", "s3cret")
	status, out, errs := command("", "job", "validate", "--run-code", "--set", "agent.tools=[{mcp: {url: \"http://127.0.0.1:1/mcp\", headers: {Authorization: \"Bearer ${MCP_TEST_KEY}\"}}}]", "examples/mcp_tool.yaml")
	require.Equal(t, 2, status, out)
	require.Contains(t, errs, "http://127.0.0.1:1/mcp")
	require.Contains(t, errs, "connection refused")
	require.NotContains(t, errs, "s3cret")
	status, _, errs = command("", "job", "validate", "--set", "agent.tools=[{mcp: {command: [no-such-program]}}]", "examples/mcp_tool.yaml")
	require.Equal(t, 2, status)
	require.Contains(t, errs, `: agent.tools.0: mcp: the program "no-such-program" is not on PATH; install it, or give its path`+"\n")
}

func TestToolsServeOverStdio(t *testing.T) {
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"calculator","arguments":{"expression":"6*7"}}}`,
	}, "\n") + "\n"
	run := process("tools", "serve", "calculator")
	stdin, err := run.StdinPipe()
	require.NoError(t, err)
	stdout, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	_, err = io.WriteString(stdin, in)
	require.NoError(t, err)
	lines := bufio.NewScanner(stdout)
	var replies []map[string]any
	for len(replies) < 2 && lines.Scan() {
		var reply map[string]any
		require.NoError(t, json.Unmarshal(lines.Bytes(), &reply), "nothing but messages stands on standard output")
		replies = append(replies, reply)
	}
	require.Len(t, replies, 2)
	require.Equal(t, map[string]any{"content": []any{map[string]any{"type": "text", "text": "42"}}}, replies[1]["result"])
	require.NoError(t, stdin.Close())
	require.NoError(t, run.Wait(), "the end of the input is the end of the program")
}

func TestToolsServeOverHTTP(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, write := io.Pipe()
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		ended <- agentfly.Run(ctx, []string{"agentfly", "tools", "serve", "--http", "127.0.0.1:0", "--api-key", "k", "calculator"}, strings.NewReader(""), write, &errs)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^serving tools on http://127\.0\.0\.1:\d+/mcp\n$`, line)
	url := strings.TrimSpace(strings.TrimPrefix(line, "serving tools on "))
	post := func(key, path, body string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response
	}
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	require.Equal(t, http.StatusUnauthorized, post("x", url, begin).StatusCode)
	response := post("k", url, begin)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NotEmpty(t, response.Header.Get("Mcp-Session-Id"))
	require.Equal(t, http.StatusNotFound, post("k", strings.TrimSuffix(url, "/mcp"), begin).StatusCode)
	for path, status := range map[string]int{"/mcp": http.StatusUnauthorized, "/nowhere": http.StatusNotFound} { // the body never comes
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", path)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, "an answer comes")
		require.Equal(t, status, reply.StatusCode)
		_, err = io.Copy(io.Discard, conn)
		require.NoError(t, err, "the connection ends")
		require.NoError(t, conn.Close())
	}
	stop()
	require.Zero(t, <-ended, errs.String())
	http.DefaultClient.CloseIdleConnections()
}

func TestToolsServeRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--http 0.0.0.0:80 is reachable from elsewhere: give --api-key, or the environment's AGENTFLY_API_KEY": {"--http", "0.0.0.0:80"},
		"--http here: allowed is HOST:PORT, such as 127.0.0.1:8090":                                            {"--http", "here"},
		`did you mean "calculator"?`: {"calculater"},
	} {
		status, _, errs := command("", append([]string{"tools", "serve"}, args...)...)
		require.Equal(t, 2, status)
		require.Contains(t, errs, want)
	}
}
