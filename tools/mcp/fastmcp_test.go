package mcp

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// pythonMCP is an interpreter that has the Python library: scripts/test_mcp.sh installs it.
func pythonMCP(t *testing.T) config {
	t.Helper()
	python := os.Getenv("AGENTFLY_MCP_PYTHON")
	if python == "" {
		t.Skip("needs a Python with the package mcp in AGENTFLY_MCP_PYTHON; make test-mcp installs it and runs this test")
	}
	script, err := filepath.Abs("testdata/fastmcp_server.py")
	require.NoError(t, err)
	return config{Command: []string{python, script, "stdio"}}
}

func checkFastMCP(t *testing.T, s *opened) {
	t.Helper()
	r := registryOf(t, s, tools.Options{Timeout: time.Minute})
	require.Equal(t, []string{"add", "fail", "picture", "weather"}, r.Names())
	require.Equal(t, "42", invoke(t, r, "add", `{"a": 40, "b": 2}`).Observation)
	got := invoke(t, r, "add", `{"a": "x", "b": 2}`)
	require.True(t, got.Failed)
	require.Contains(t, got.Observation, `the argument "a" must be an integer`)
	o, err := s.call(t.Context(), "weather", json.RawMessage(`{"place": {"city": "Oslo"}, "unit": "kelvin", "days": [1, 2]}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"city": "Oslo", "country": null, "unit": "kelvin", "days": 3, "style": "short"}`, o.Text)
	got = invoke(t, r, "weather", `{"place": {"town": "Oslo"}}`)
	require.True(t, got.Failed)
	require.NotEqual(t, trajectory.CauseBroken, got.Cause)
	require.Contains(t, got.Observation, "city")
	got = invoke(t, r, "weather", `{"place": {"city": "Oslo"}, "style": "odd"}`)
	require.Contains(t, got.Observation, `the argument "style" must be one of "short", "long"`)
	got = invoke(t, r, "fail", `{"reason": "no such city"}`)
	require.True(t, got.Failed)
	require.NotEqual(t, trajectory.CauseBroken, got.Cause)
	require.Contains(t, got.Observation, "Error executing tool fail") // version 2 keeps the reason to itself
	o, err = s.call(t.Context(), "picture", nil)
	require.NoError(t, err)
	require.Equal(t, "data:image/png;base64,iVBORw==", o.Image)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			arguments := `{"a": ` + strconv.Itoa(i) + `, "b": 1}`
			require.Equal(t, strconv.Itoa(i+1), invoke(t, r, "add", arguments).Observation)
		})
	}
	wg.Wait()
}

func TestFastMCPOverStdio(t *testing.T) {
	s := openTest(t, pythonMCP(t), usual)
	checkFastMCP(t, s)
}

func TestFastMCPOverHTTP(t *testing.T) {
	c := pythonMCP(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	run := exec.Command(c.Command[0], c.Command[1], port)
	said, err := run.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "running on") {
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
		}
	}()
	defer func() {
		require.NoError(t, run.Process.Kill())
		<-drained
		_ = run.Wait()
	}()
	s := openTest(t, config{URL: "http://127.0.0.1:" + port + "/mcp"}, usual)
	checkFastMCP(t, s)
	require.NoError(t, s.Close())
}
