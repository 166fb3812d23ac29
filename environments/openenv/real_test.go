package openenv

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// openEnv runs a script of testdata with OpenEnv's Python.
func openEnv(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	python := os.Getenv("AGENTFLY_OPENENV_PYTHON")
	if python == "" {
		t.Skip("needs a Python with openenv 0.10 in AGENTFLY_OPENENV_PYTHON; scripts/openenv_packages.sh installs one and prints it")
	}
	path, err := filepath.Abs(filepath.Join("testdata", script))
	require.NoError(t, err)
	c := exec.Command(python, append([]string{path}, args...)...)
	c.Env = append(os.Environ(), "no_proxy=127.0.0.1,localhost", "NO_PROXY=127.0.0.1,localhost")
	return c
}

// output is what a process wrote so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// reference is OpenEnv's own server.
func reference(t *testing.T, kind string, sessions int) (url string, out *output, kill func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	c := openEnv(t, "openenv_server.py", port, kind, strconv.Itoa(sessions))
	out = &output{}
	c.Stdout, c.Stderr = out, out
	require.NoError(t, c.Start())
	kill = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	t.Cleanup(kill)
	url = "http://127.0.0.1:" + port
	require.Eventually(t, func() bool {
		answer, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond, "%s", out)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return url, out, kill
}

// OpenEnv's own server, unchanged: episodes, bad actions, an environment that raises, tasks, state, and an environment closed with each session.
func TestReferenceServer(t *testing.T) {
	url, out, kill := reference(t, "guess", 2)
	s := client(t, map[string]any{"hosts": []any{url}})
	require.Empty(t, s.Spec().Tools)
	e, err := s.New(t.Context(), "")
	require.NoError(t, err)
	var first []environments.Result
	for range 2 { // the same seed and actions give the same episode
		var all []environments.Result
		for seed := range int64(10) {
			seen, err := e.Reset(t.Context(), start(seed, map[string]any{"low": 3}))
			require.NoError(t, err)
			require.Equal(t, environments.Text("Guess a digit from 3 to 9."), seen)
			for guess := 5; ; guess++ {
				r, err := e.Step(t.Context(), environments.Action{Text: strconv.Itoa(guess)})
				require.NoError(t, err)
				all = append(all, r)
				if r.Over() {
					require.Equal(t, r.Reward == 1, r.Terminated)
					break
				}
			}
		}
		if first == nil {
			first = all
		}
		require.Equal(t, first, all)
	}
	_, err = e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	for _, bad := range []string{"77", "seven", ""} {
		r, err := e.Step(t.Context(), environments.Action{Text: bad})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Contains(t, r.Observation[0].Text, "Error: guess: Input should be")
	}
	_, err = e.Step(t.Context(), environments.Action{Text: "0"})
	require.ErrorContains(t, err, url+": the server answered EXECUTION_ERROR: zero is broken")
	state, err := e.(environments.Caller).Call(t.Context(), "state", nil)
	require.NoError(t, err)
	require.Contains(t, string(state), `"step_count":1`)
	_, err = e.Reset(t.Context(), start(1, map[string]any{"low": "x"}))
	require.ErrorContains(t, err, "EXECUTION_ERROR")

	tasks, err := s.(environments.Tasker).Tasks(environments.Eval, 2)
	require.NoError(t, err)
	require.Equal(t, []trajectory.Task{{ID: "test-0", Fields: map[string]any{"low": 0.0}}, {ID: "test-1", Fields: map[string]any{"low": 1.0}}}, tasks)
	_, err = s.(environments.Tasker).Tasks(environments.Train, 11)
	require.ErrorContains(t, err, "its split train has 10 tasks, and 11 are asked for")

	second, err := s.New(t.Context(), "")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.New(short, "")
	require.ErrorContains(t, err, url+": it is full, with 2 of 2 sessions")
	require.NoError(t, second.Close())
	third, err := s.New(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, third.Close())
	require.NoError(t, e.Close())
	eventually(t, "all are closed", func() bool { return strings.Count(out.String(), "closed") >= 3 })

	e = begin(t, s)
	_, err = e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	kill()
	_, err = e.Step(t.Context(), environments.Action{Text: "5"})
	require.ErrorContains(t, err, url+": the connection broke")
	_, err = s.New(t.Context(), "")
	require.ErrorContains(t, err, "connection refused")
}

// OpenEnv's server of an MCP environment: its tools are the agent's.
func TestReferenceMCPServer(t *testing.T) {
	url, _, _ := reference(t, "mcp", 8)
	s := client(t, map[string]any{"hosts": []any{url}, "text": ""})
	var names []string
	for _, tool := range s.Spec().Tools {
		names = append(names, tool.Name)
	}
	require.Equal(t, []string{"add", "fail"}, names)
	e := begin(t, s)
	first, err := e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	require.Contains(t, first[0].Text, "add 2 and 3")
	call := func(name, arguments string) environments.Result {
		r, err := e.Step(t.Context(), environments.Action{Name: name, Arguments: json.RawMessage(arguments)})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, environments.Result{Observation: environments.Text("4")}, call("add", `{"a": 2, "b": 2}`))
	for name, arguments := range map[string]string{"add": `{"a": "x"}`, "fail": `{"reason": "no luck"}`} {
		r := call(name, arguments)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Zero(t, r.Reward)
		require.Contains(t, r.Observation[0].Text, "Error: ")
	}
	require.Equal(t, environments.Result{Observation: environments.Text("5"), Reward: 1, Terminated: true}, call("add", `{"a": 2, "b": 3}`))
}

// A step of OpenEnv's server that does not answer ends with timeout_s, and the session with it.
func TestReferenceServerThatIsSlow(t *testing.T) {
	url, _, _ := reference(t, "slow", 2)
	e := begin(t, client(t, map[string]any{"hosts": []any{url}, "timeout_s": 1.5}))
	_, err := e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	_, err = e.Step(t.Context(), environments.Action{Text: "1"})
	require.ErrorContains(t, err, `it did not answer "step" within 1.5s (timeout_s)`)
	require.Error(t, e.(environments.Checker).Check(t.Context()))
}

// OpenEnv's own clients, and its validator, against our server.
func TestReferenceClients(t *testing.T) {
	for what, c := range map[string]struct {
		spec environments.Spec
		o    ServerOptions
	}{
		"texts": {environments.Spec{}, ServerOptions{Key: "k"}}, "tools": {withTools(), ServerOptions{Key: "k"}}, "full": {environments.Spec{}, ServerOptions{MaxSessions: 1}},
		"validate": {environments.Spec{}, ServerOptions{Description: "a digit"}},
	} {
		t.Run(what, func(t *testing.T) {
			s := &worlds{spec: c.spec}
			v, url := serve(t, s, c.o)
			run := openEnv(t, "openenv_client.py", url, "k", what)
			text, err := run.CombinedOutput()
			require.NoError(t, err, "%s", text)
			require.Contains(t, string(text), "passed")
			eventually(t, "all places are free", func() bool { v.sessions.mu.Lock(); defer v.sessions.mu.Unlock(); return len(v.sessions.byID) == 0 })
			require.Equal(t, s.made.Load(), s.closed.Load(), fmt.Sprint(s.made.Load()))
		})
	}
}
