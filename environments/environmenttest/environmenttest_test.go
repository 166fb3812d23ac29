package environmenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// counter is an environment that keeps all promises, but for the one that fault names: two steps of "go" end it.
type counter struct {
	fault string
	n     int
	level int64
	stop  chan struct{}
	calls int
	other *counter
}

var shared atomic.Int64 // of the fault "shared"

func (w *counter) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	level, err := environments.LevelOf(s)
	switch {
	case err != nil && w.fault == "blame":
		return nil, errors.New(err.Error())
	case err != nil && w.fault != "fields":
		return nil, err
	}
	w.calls++
	w.level = level
	shared.Store(0)
	if w.fault != "leaks" {
		w.n = 0
	}
	if w.fault == "empty" {
		return environments.Text(""), nil
	}
	if w.fault == "goroutine" {
		go func() { <-w.stop }()
	}
	if w.fault == "same start" {
		level = 0
	}
	return environments.Text(fmt.Sprint("level ", level)), nil
}

func (w *counter) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if w.fault == "deaf" && ctx.Err() != nil {
		<-w.stop
	}
	if a.Text != "go" {
		switch w.fault {
		case "error":
			return environments.Result{}, errors.New("cannot read that")
		case "silent":
			return environments.Result{Observation: environments.Text("what?")}, nil
		case "renames":
			return environments.Result{Observation: environments.Text("say go"), Failure: trajectory.FailurePolicy, Anchor: "refused"}, nil
		case "fatal":
			return environments.Result{Observation: environments.Text("what?"), Failure: trajectory.FailurePolicy, Terminated: true}, nil
		}
		return environments.Result{Observation: environments.Text("say go"), Failure: trajectory.FailurePolicy}, nil
	}
	w.n++
	together := int(shared.Add(1))
	n := w.n
	switch {
	case w.fault == "shared":
		n = together
	case w.fault == "fork" && w.other != nil:
		w.other.n++
	case w.fault == "random":
		n += w.calls * 10
	}
	r := environments.Result{Observation: environments.Text(fmt.Sprint(w.level, " ", n)), Reward: 0.5, Terminated: w.n >= 2 && w.fault != "endless", Success: w.n >= 2}
	switch w.fault {
	case "no success":
		r.Success = false
	case "early success":
		r.Success = true
	case "success by chance":
		r.Success = w.calls > 1
	}
	return r, nil
}

func (w *counter) Close() error {
	if w.fault == "close" {
		return errors.New("cannot close")
	}
	return nil
}

func (w *counter) Actions(context.Context) ([]string, error) {
	if w.fault == "choice" {
		return []string{"stay"}, nil
	}
	return []string{"go"}, nil
}

func (w *counter) Solution(context.Context) ([]environments.Action, error) {
	out := slices.Repeat([]environments.Action{{Text: "go"}}, 2)
	if w.fault == "solution" {
		out = out[:1]
	}
	return out, nil
}

func (w *counter) State(context.Context) (json.RawMessage, error) { return json.Marshal(w.n) }

func (w *counter) Restore(_ context.Context, state json.RawMessage) error {
	if w.fault == "state" {
		return nil
	}
	return json.Unmarshal(state, &w.n)
}

func (w *counter) Fork(context.Context) (environments.Environment, error) {
	second := *w
	if w.fault == "fork" {
		w.other = &second
		return &second, nil
	}
	return &second, nil
}

type counters struct {
	fault string
	stop  chan struct{}
}

func (s *counters) Spec() environments.Spec {
	return environments.Spec{Deterministic: true, InProcess: true}
}

func (s *counters) New(context.Context, string) (environments.Environment, error) {
	return &counter{fault: s.fault, stop: s.stop}, nil
}
func (s *counters) Close() error { return nil }

func (s *counters) Tasks(split string, n int) ([]trajectory.Task, error) {
	if s.fault == "split" && split != environments.Train {
		split = environments.Eval
	}
	if n > 1000 && s.fault != "endless tasks" {
		return nil, errors.New("there are 1000 tasks")
	}
	tasks, err := environments.LevelTasks("counter", split, n, func(level int64) string { return fmt.Sprint(level) })
	if s.fault == "ids" && len(tasks) > 1 {
		tasks[1].ID = tasks[0].ID
	}
	return tasks, err
}

func kind(fault string, stop chan struct{}) Case {
	return Case{TooMany: 2000, Reset: time.Second, late: time.Second, Source: func(testing.TB) environments.Source { return &counters{fault, stop} }}
}

func TestAllPromisesKept(t *testing.T) { Run(t, kind("", nil)) }

// A kind that knows no success says so.
func TestKindsWithoutSuccess(t *testing.T) {
	c := kind("no success", nil)
	c.NoSuccess = true
	require.NoError(t, solutions(t, c.filled()))
}

// The suite finds each fault, at the promise that it breaks.
func TestFaultsAreFound(t *testing.T) {
	for fault, c := range map[string]struct{ promise, want string }{
		"empty":             {"reset", "is empty"},
		"close":             {"exits", "cannot close"},
		"leaks":             {"deterministic", "differs"},
		"random":            {"deterministic", "differs"},
		"error":             {"bad_actions", "the agent's fault and no error"},
		"silent":            {"bad_actions", "does not say that the action was not possible"},
		"renames":           {"bad_actions", "names another state"},
		"fatal":             {"bad_actions", "ended the episode"},
		"endless":           {"over", "did not end the episode"},
		"fields":            {"unknown_fields", "unknown field is no error"},
		"blame":             {"unknown_fields", "must be a TaskError"},
		"deaf":              {"cancel", "does not return"},
		"shared":            {"two_at_once", "differs"},
		"state":             {"state", "what follows a restored state"},
		"fork":              {"fork", "a fork"},
		"split":             {"tasks", "unknown split"},
		"same start":        {"tasks", "begins as one of"},
		"ids":               {"tasks", "there twice"},
		"endless tasks":     {"tasks", "2000 tasks are no error"},
		"goroutine":         {"goroutines", "unexpected goroutines"},
		"solution":          {"solution", "1 is full"},
		"choice":            {"random", "listed as possible and is not"},
		"no success":        {"solution", "does not say that the goal is reached"},
		"early success":     {"solution", "before its end"},
		"success by chance": {"deterministic", "differs"},
	} {
		t.Run(fault, func(t *testing.T) {
			stop := make(chan struct{})
			defer close(stop)
			at := slices.IndexFunc(promises, func(p promise) bool { return p.name == c.promise })
			require.ErrorContains(t, promises[at].hold(t, kind(fault, stop).filled()), c.want)
		})
	}
}
