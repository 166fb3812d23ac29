package e2e_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// openEnvPython is a Python with OpenEnv's package.
func openEnvPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("AGENTFLY_OPENENV_PYTHON")
	if python == "" {
		t.Skip("needs a Python with openenv 0.10 in AGENTFLY_OPENENV_PYTHON: make test-env")
	}
	return python
}

// program is a program of others, which ends with the test.
func program(t *testing.T, dir, name string, args ...string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command(name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &out
	c.Env = append(os.Environ(), "no_proxy=127.0.0.1,localhost", "NO_PROXY=127.0.0.1,localhost")
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return &out
}

// freePort is a port of this machine that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// The environment that OpenEnv's own `openenv init` makes, served unchanged by its own server: a model learns in it, and every sampled trajectory's
// reward is what the server pays for the word that was sent. With shuffled rewards it does not learn.
func TestAReferenceServerTrains(t *testing.T) {
	needTorch(t)
	python := openEnvPython(t)
	dir := t.TempDir()
	text, err := exec.Command(filepath.Join(filepath.Dir(python), "openenv"), "init", "echo_env", "--output-dir", dir).CombinedOutput()
	require.NoError(t, err, "%s", text)
	port := freePort(t)
	log := program(t, filepath.Join(dir, "echo_env"), python, "-m", "uvicorn", "server.app:app", "--host", "127.0.0.1", "--port", port)
	url := "http://127.0.0.1:" + port
	require.Eventually(t, func() bool {
		answer, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond, "%s", log)

	job := "examples/worlds/openenv.yaml"
	learned := regexp.MustCompile(`held-out tasks ([\d.]+) before, ([\d.]+) after`)
	after := func(run string, args ...string) float64 {
		status, out, errs := command("", append([]string{"train", job, "--output", run, "--set", "environment.params.hosts=[" + url + "]"}, args...)...)
		require.Zero(t, status, "%s%s", out, errs)
		found := learned.FindStringSubmatch(out)
		require.NotNil(t, found, out)
		require.Equal(t, "0.000", found[1])
		reward, err := strconv.ParseFloat(found[2], 64)
		require.NoError(t, err)
		return reward
	}
	run := filepath.Join(dir, "run")
	require.GreaterOrEqual(t, after(run), 0.7)
	require.Less(t, after(filepath.Join(dir, "shuffled"), "--set", "control.shuffle_rewards=true"), 0.4)

	db := opened(t, run)
	checked := 0
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		if turn := r.Trajectory.Turns[0]; len(turn.Results) == 1 && !turn.Results[0].Failed {
			require.True(t, strings.HasPrefix(strings.TrimSpace(turn.Completion), turn.Results[0].Observation), "%q", turn.Completion) // an action is a line
			require.InDelta(t, min(1, float64(len(turn.Results[0].Observation))/10), r.Trajectory.Reward, 1e-9)
			checked++
		}
		return nil
	}))
	require.Greater(t, checked, 100)
}

// OpenEnv's own client shops in our WebShop.
func TestReferenceClientShops(t *testing.T) {
	python := openEnvPython(t)
	script, err := filepath.Abs("environments/openenv/testdata/openenv_client.py")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs lines
	ended := make(chan int, 1)
	go func() {
		ended <- agentfly.Run(ctx, []string{"agentfly", "env", "serve", "webshop", "--address", "127.0.0.1:0", "--api-key", "k"}, strings.NewReader(""), &out, &errs)
	}()
	at := regexp.MustCompile(`serving webshop on (http://\S+)\n`)
	require.Eventually(t, func() bool { return at.MatchString(out.String()) }, time.Minute, 20*time.Millisecond, "%s", &errs)
	c := exec.Command(python, script, at.FindStringSubmatch(out.String())[1], "k", "webshop")
	c.Env = append(os.Environ(), "no_proxy=127.0.0.1,localhost", "NO_PROXY=127.0.0.1,localhost")
	text, err := c.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "passed")
	t.Logf("%s", text)
	cancel()
	require.Zero(t, <-ended, &errs)
}
