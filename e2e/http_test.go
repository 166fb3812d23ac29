package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools/calculator"
)

// service is the calculator over HTTP; asked counts its requests. It wants a key.
func service(t *testing.T, asked *atomic.Int64) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		if q.Header.Get("Authorization") != "Bearer hunter2" {
			http.Error(w, "wrong key: "+q.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		result, err := calculator.Evaluate(q.Context(), q.URL.Query().Get("expression"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		fmt.Fprint(w, result)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A job whose service does not listen ends before its model is opened; it can be validated, and needs no service where its tools are off.
func TestAJobOfAServiceThatIsNotThere(t *testing.T) {
	server := httptest.NewServer(nil)
	url := server.URL
	server.Close()
	service := "agent.tools.0.http.url=" + url + "/calculate"
	job := []string{"--set", service, "--set", "model.path=/no/such/model", "examples/tiny_http.yaml"}
	for _, what := range []string{"train", "rollout"} {
		status, out, errs := command("", append([]string{what}, job...)...)
		require.Equal(t, 1, status)
		require.Empty(t, out)
		require.Equal(t, "agentfly: http: nobody listens at "+url+": connection refused; start it before the job, or correct its address\n", errs)
	}
	status, _, errs := command("", "job", "validate", "--set", service, "examples/tiny_http.yaml")
	require.Zero(t, status, errs)
	_, _, errs = command("", append([]string{"rollout", "--set", "control.tools_off=true"}, job...)...)
	require.NotEmpty(t, errs)
	require.NotContains(t, errs, "nobody listens")
}

// A job whose tool is a service learns bit for bit as with the same tool in the process, asks each question once, and keeps its key to itself.
func TestAJobOfAService(t *testing.T) {
	needTorch(t)
	t.Setenv("CALCULATOR_KEY", "hunter2")
	var asked atomic.Int64
	train := func(job string, args ...string) (string, []float64) {
		dir := filepath.Join(t.TempDir(), "run")
		status, out, errs := command("", append([]string{"train", "--output", dir, "--set", "trainer.steps=6", job}, args...)...)
		require.Zero(t, status, "%s%s", out, errs)
		rewards, _ := curve(t, dir)
		return dir, rewards
	}
	_, want := train("examples/tiny.yaml")
	dir, got := train("examples/tiny_http.yaml", "--set", "agent.tools.0.http.url="+service(t, &asked)+"/calculate", "--set", "agent.tools.0.http.headers.Authorization=Bearer ${CALCULATOR_KEY}")
	require.Equal(t, want, got)
	require.EqualValues(t, 4, asked.Load(), "there are four questions")

	calls, cached := 0.0, 0.0
	metrics, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	for line := range strings.Lines(string(metrics)) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if n, ok := m["tools/calls"].(float64); ok {
			calls, cached = calls+n, cached+m["tools/cached"].(float64)
		}
	}
	require.Greater(t, calls, 4.0)
	require.Equal(t, calls-4, cached)

	copied, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(copied), "Bearer ${CALCULATOR_KEY}")
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), "hunter2", path)
		return err
	}))
}
