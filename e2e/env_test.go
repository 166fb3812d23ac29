package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/openenv"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// stairs is a world of some steps, each of which is climbed with "up". It has every optional power that a terminal uses.
type stairs struct {
	tall, at int
	calls    bool // it has a tool of its own
}

type stairsSource struct {
	environments.Source
	tall int
}

func (s stairsSource) Tasks(split string, n int) (out []trajectory.Task, err error) {
	for i := range n {
		out = append(out, trajectory.Task{ID: fmt.Sprintf("%s-%d", split, i), Fields: map[string]any{"at": float64(i % s.tall)}})
	}
	return out, nil
}

func stairsKind(name string, calls bool) environments.Kind {
	return environments.Kind{Name: name, Description: "climbs some stairs", New: func(_ context.Context, _ *resources.Resources, params map[string]any) (environments.Source, error) {
		c := struct {
			Tall int `json:"tall"`
		}{3}
		if err := resources.Decode(params, &c); err != nil {
			return nil, err
		}
		spec := environments.Spec{Instructions: "Climb to the top.", Deterministic: true}
		if calls {
			spec.Tools = []tools.Spec{{Name: "climb", Description: "climbs", Parameters: json.RawMessage(`{"type":"object","properties":{"steps":{"type":"integer"}},"required":["steps"]}`)}}
		}
		return stairsSource{environments.Simple(spec, func() environments.Environment { return &stairs{tall: c.Tall, calls: calls} }), c.Tall}, nil
	}}
}

func (s *stairs) Reset(_ context.Context, start environments.Start) (environments.Observation, error) {
	c := struct {
		At int `json:"at"`
	}{}
	s.at = 0
	if err := environments.DecodeTask(start, []string{"at"}, &c); err != nil {
		return nil, err
	}
	s.at = c.At
	return environments.Text(fmt.Sprintf("You stand at %d of %d.", s.at, s.tall)), nil
}

func (s *stairs) Step(_ context.Context, a environments.Action) (environments.Result, error) {
	switch {
	case s.calls:
		var c struct{ Steps int }
		if err := json.Unmarshal(a.Arguments, &c); err != nil {
			return environments.Result{}, err
		}
		s.at += c.Steps
	case a.Text == "up":
		s.at++
	default:
		return environments.Result{Observation: environments.Text("write up"), Failure: trajectory.FailurePolicy}, nil
	}
	r := environments.Result{Observation: environments.Text(fmt.Sprintf("You stand at %d of %d.", s.at, s.tall)), Terminated: s.at >= s.tall}
	if r.Terminated {
		r.Reward = 1
	}
	return r, nil
}

func (s *stairs) Close() error { return nil }

func (s *stairs) Actions(context.Context) ([]string, error) { return []string{"up", "down"}, nil }

func (s *stairs) Solution(context.Context) (out []environments.Action, err error) {
	for range s.tall - s.at {
		out = append(out, environments.Action{Text: "up"})
	}
	return out, nil
}

// far is the kind openenv under another name.
func far() environments.Kind {
	k := openenv.Kind()
	k.Name = "far"
	return k
}

// envCommand runs a command line of a program that has these environments.
func envCommand(ctx context.Context, in string, args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = agentfly.Run(ctx, append([]string{"agentfly"}, args...), strings.NewReader(in), &o, &e,
		agentfly.WithEnvironment(stairsKind("stairs", false)), agentfly.WithEnvironment(stairsKind("called_stairs", true)), agentfly.WithEnvironment(far()))
	return status, o.String(), e.String()
}

func TestEnvListAndPlay(t *testing.T) {
	status, out, errs := envCommand(t.Context(), "", "env", "list")
	require.Zero(t, status, errs)
	require.Contains(t, out, "stairs           climbs some stairs\n")

	status, out, errs = envCommand(t.Context(), "up\ndown\nup\n", "env", "play", "stairs", "--seed", "1")
	require.Zero(t, status, errs)
	require.Equal(t, "Climb to the top.\nYou stand at 1 of 3.\n> You stand at 2 of 3.\n[reward 0]\n> write up\n[reward 0, the action was not possible]\n"+
		"> You stand at 3 of 3.\n[reward 1, the episode is over]\n3 actions, reward 1\n", out)

	status, out, errs = envCommand(t.Context(), "", "env", "play", "stairs", "--solve", "--param", "tall=5", "--task", `{"at": 3}`)
	require.Zero(t, status, errs)
	require.Contains(t, out, "You stand at 3 of 5.\n> up\n")
	require.Contains(t, out, "2 actions, reward 1\n")

	first := ""
	for range 2 { // by chance, and the same chance for the same seed
		status, out, errs = envCommand(t.Context(), "", "env", "play", "stairs", "--random", "--seed", "7")
		require.Zero(t, status, errs)
		require.Regexp(t, `\d+ actions, reward 1\n$`, out)
		if first == "" {
			first = out
		}
		require.Equal(t, first, out)
	}

	status, out, errs = envCommand(t.Context(), "climb nonsense\nclimb {\"steps\": 3}\n", "env", "play", "called_stairs")
	require.Zero(t, status, errs)
	require.Contains(t, out, "tool climb {")
	require.Contains(t, out, "> write a tool's name and its arguments")
	require.Contains(t, out, "1 actions, reward 1\n")

	status, out, errs = envCommand(t.Context(), "up\n", "env", "play", "stairs")
	require.Zero(t, status, errs)
	require.Contains(t, out, "left after 1 actions, reward so far 0\n")
}

func TestEnvCommandsThatAreWrong(t *testing.T) {
	jobFile := filepath.Join(t.TempDir(), "job.yaml")
	for want, args := range map[string][]string{
		"takes one argument, a kind of environment":            {"play"},
		`there is no environment "stair"`:                      {"play", "stair"},
		`unknown field "high"`:                                 {"play", "stairs", "--param", "high=3"},
		"--param tall: write KEY=VALUE":                        {"play", "stairs", "--param", "tall"},
		"--param tall.x=3: tall is no object":                  {"play", "stairs", "--param", "tall=1", "--param", "tall.x=3"},
		"--task is no JSON object":                             {"play", "stairs", "--task", "x"},
		"--task is no JSON object: something stands behind it": {"play", "stairs", "--task", "{}{}"},
		"--random and --solve are two ways":                    {"play", "stairs", "--random", "--solve"},
		"--seed is -1":                                         {"play", "stairs", "--seed", "-1"},
		"--address x: allowed is HOST:PORT":                    {"serve", "stairs", "--address", "x"},
		"0.0.0.0:0 is reachable from elsewhere":                {"serve", "stairs", "--address", "0.0.0.0:0"},
		"--max-sessions is 0":                                  {"serve", "stairs", "--max-sessions", "0"},
		"the job file cannot be read":                          {"serve", jobFile},
		"hosts is missing; list the URLs of OpenEnv servers":   {"serve", "far"},
		"http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: c": {"play", "far", "--param", "hosts=[127.0.0.1:1]"},
	} {
		t.Run(want, func(t *testing.T) {
			status, _, errs := envCommand(t.Context(), "", append([]string{"env"}, args...)...)
			require.Equal(t, 2, status, errs)
			require.Contains(t, errs, want)
		})
	}
	status, _, errs := envCommand(t.Context(), "", "env", "play", "stairs", "--task", `{"att": 3}`)
	require.Equal(t, 1, status)
	require.Contains(t, errs, `the environment knows no field "att" (did you mean "at"?)`)
}

// lines is a writer that a test may read while a command writes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// servingEnv serves an environment until stop is called, which returns the status.
func servingEnv(t *testing.T, args ...string) (url string, stop func() (status int, errs string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs lines
	ended := make(chan int, 1)
	go func() {
		ended <- agentfly.Run(ctx, append([]string{"agentfly", "env", "serve", "--address", "127.0.0.1:0"}, args...), strings.NewReader(""), &out, &errs, agentfly.WithEnvironment(stairsKind("stairs", false)), agentfly.WithEnvironment(stairsKind("called_stairs", true)))
	}()
	t.Cleanup(cancel)
	at := regexp.MustCompile(`serving \w+ on (http://\S+)\n`)
	require.Eventually(t, func() bool { return at.MatchString(out.String()) }, 20*time.Second, 5*time.Millisecond, "%s", &errs)
	return at.FindStringSubmatch(out.String())[1], func() (int, string) {
		cancel()
		return <-ended, errs.String()
	}
}

// What one command serves another one plays: the same text, and the same reward.
func TestEnvServeAndPlay(t *testing.T) {
	job := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(job, []byte("version: 1\nname: x\nmodel: {path: nowhere}\nenvironment: {kind: stairs, params: {tall: 4}}\n"), 0o600))
	for what, args := range map[string][]string{"kind": {"stairs", "--param", "tall=4"}, "job": {job}} {
		t.Run(what, func(t *testing.T) {
			url, stop := servingEnv(t, append(args, "--api-key", "k")...)
			status, there, errs := envCommand(t.Context(), "up\nx\nup\nup\n", "env", "play", "far", "--param", "hosts=["+url+"]", "--param", "api_key=k", "--seed", "1")
			require.Zero(t, status, errs)
			status, here, errs := envCommand(t.Context(), "up\nx\nup\nup\n", "env", "play", "stairs", "--param", "tall=4", "--seed", "1")
			require.Zero(t, status, errs)
			require.Equal(t, here, there)
			require.Contains(t, there, "reward 1\n")
			status, _, errs = envCommand(t.Context(), "", "env", "play", "far", "--param", "hosts=["+url+"]")
			require.Equal(t, 2, status)
			require.Contains(t, errs, "give its key as api_key")
			status, errs = stop()
			require.Zero(t, status, errs)
			require.Empty(t, errs)
		})
	}
}

// A server that is told to stop lets a session end, answers that it is leaving meanwhile, and ends it when its time is over.
func TestEnvServeDrains(t *testing.T) {
	for _, late := range []bool{false, true} {
		timeout := "60"
		if late {
			timeout = "0"
		}
		url, stop := servingEnv(t, "stairs", "--shutdown-timeout", timeout)
		s, err := far().New(t.Context(), resources.New(resources.Options{}), map[string]any{"hosts": []any{url}})
		require.NoError(t, err)
		e, err := s.New(t.Context(), "")
		require.NoError(t, err)
		_, err = e.Reset(t.Context(), environments.Start{})
		require.NoError(t, err)
		type end struct {
			status int
			errs   string
		}
		ended := make(chan end, 1)
		go func() {
			status, errs := stop()
			ended <- end{status, errs}
		}()
		if !late {
			require.Eventually(t, func() bool {
				answer, err := http.Get(url + "/health")
				if err != nil {
					return false
				}
				defer answer.Body.Close()
				return answer.StatusCode == http.StatusServiceUnavailable
			}, 20*time.Second, 5*time.Millisecond)
			r, err := e.Step(t.Context(), environments.Action{Text: "up"})
			require.NoError(t, err)
			require.Equal(t, environments.Text("You stand at 1 of 3."), r.Observation)
			require.NoError(t, e.Close())
		}
		got := <-ended
		require.Zero(t, got.status, got.errs)
		if late {
			require.Contains(t, got.errs, "agentfly: sessions were ended before their clients did: 1\n")
			_, err = e.Step(t.Context(), environments.Action{Text: "up"})
			require.ErrorContains(t, err, "the server is shutting down")
			require.NoError(t, e.Close())
		}
		require.NoError(t, errors.Join(s.Close()))
		http.DefaultClient.CloseIdleConnections()
	}
}
