//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
)

// mlflowServer starts a real server and returns its address and its interpreter.
func mlflowServer(t *testing.T) (address, python string) {
	python = os.Getenv("AGENTFLY_EXPORT_MLFLOW")
	if python == "" {
		t.Skip("AGENTFLY_EXPORT_MLFLOW names no interpreter with mlflow: make test-export")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	dir := t.TempDir()
	c := exec.Command(python, "-m", "mlflow", "server", "--backend-store-uri", "sqlite:///"+filepath.Join(dir, "m.db"), "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--workers", "1")
	c.Env = append(os.Environ(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false")
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // with its workers
		_ = c.Wait()
	})
	address = fmt.Sprintf("http://127.0.0.1:%d", port)
	require.Eventually(t, func() bool {
		resp, err := http.Get(address + "/health")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 3*time.Minute, 200*time.Millisecond, "the server does not come up")
	return address, python
}

func TestReadersOfMLflow(t *testing.T) {
	address, python := mlflowServer(t)
	t.Setenv("AGENTFLY_EXPORT_PYTHON", python)
	type run struct {
		Name, Status, Model string
		Metrics             map[string][][2]float64
	}
	send := func(dir string) string {
		out, _, err := command(t, "export", "--to", address, dir, "mlflow")
		require.NoError(t, err)
		return out
	}
	dir := hostile(t)
	require.Contains(t, send(dir), "11 new values")
	require.Contains(t, send(dir), "0 new values", "nothing twice")
	var got []run
	readBack(t, "mlflow", address, &got)
	require.Len(t, got, 1)
	require.Equal(t, "tiny", got[0].Model)
	require.Equal(t, map[string][][2]float64{
		"reward/mean": {{1, 0.1}, {2, 1.0 / 3}, {3, -7}}, "seconds/elapsed": {{1, 1.5}, {2, 3}, {3, 4.5}}, "grad/norm": {{3, 2}}, "tool/_b_/calls": {{1, 3}}, "big": {{1, 1e300}},
		"eval/reward": {{3, 0.75}}, "eval/accuracy": {{3, 0}},
	}, got[0].Metrics)

	long := filepath.Join(t.TempDir(), "long") // more than one request takes
	var steps []map[string]float64
	for i := range 600 {
		steps = append(steps, map[string]float64{"reward/mean": float64(i) / 3, "seconds/elapsed": float64(i)})
	}
	overviewtest.Run{Steps: steps}.Write(t, long)
	require.Contains(t, send(long), "1200 new values")
	require.Contains(t, send(empty(t)), "0 new values")

	// Its traces take spans of OpenTelemetry, into the experiment that a header names.
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-mlflow-experiment-id=0")
	t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
	for range 2 { // the second time the same spans
		out, _, err := command(t, "export", "--to", address, dir, "otlp")
		require.NoError(t, err)
		require.Contains(t, out, "8 spans")
	}
	var traces []struct {
		Spans []struct {
			Name   string
			Parent bool
		}
	}
	readBack(t, "otlp", address, &traces)
	names := map[string]int{}
	for _, trace := range traces {
		for _, s := range trace.Spans {
			names[s.Name]++
			require.Equal(t, !strings.HasPrefix(s.Name, "invoke_agent"), s.Parent, s.Name)
		}
	}
	require.Len(t, traces, 3)
	require.Equal(t, map[string]int{"invoke_agent hos_tile <b>": 3, "chat tiny": 2, "execute_tool calc": 2, "execute_tool": 1}, names)
}

func TestExportToAServerThatIsNone(t *testing.T) {
	dir := hostile(t)
	for says, args := range map[string][]string{
		"mlflow needs the server's address: --to URL": {"export", dir, "mlflow"},
		"name it with --to, not --out":                {"export", "--to", "http://127.0.0.1:1", "--out", dir, dir, "mlflow"},
		"is no address of an MLflow server":           {"export", "--to", "mlflow.db", dir, "mlflow"},
		"connection refused":                          {"export", "--to", "http://127.0.0.1:1", dir, "mlflow"},
		"otlp needs the server's address: --to URL":   {"export", dir, "otlp"},
		"address of an OpenTelemetry collector":       {"export", "--to", "collector", dir, "otlp"},
		"--to names a server":                         {"export", "--to", "http://127.0.0.1:1", dir, "csv"},
	} {
		_, _, err := command(t, args...)
		require.ErrorContains(t, err, says)
	}
}
