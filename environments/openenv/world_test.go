package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worlds is a scripted source: guess a digit in three tries. It counts what is made and closed.
type worlds struct {
	spec         environments.Spec
	made, closed atomic.Int64
	twice        atomic.Int64 // closed more than once
	build        func(ctx context.Context) error
	step         func(ctx context.Context, w *world, a environments.Action) (environments.Result, error)
	reset        func(ctx context.Context)
	score        bool
}

func (s *worlds) Spec() environments.Spec { return s.spec }
func (s *worlds) Close() error            { return nil }

func (s *worlds) New(ctx context.Context, _ string) (environments.Environment, error) {
	if s.build != nil {
		if err := s.build(ctx); err != nil {
			return nil, err
		}
	}
	s.made.Add(1)
	w := &world{source: s}
	if s.score {
		return &scored{w}, nil
	}
	return w, nil
}

func (s *worlds) Tasks(split string, n int) ([]trajectory.Task, error) {
	if n > 50 {
		return nil, fmt.Errorf("there are 50 tasks, not %d", n)
	}
	out := make([]trajectory.Task, n)
	for i := range out {
		out[i] = trajectory.Task{ID: split + "-" + strconv.Itoa(i), Fields: map[string]any{"low": float64(i % 10)}}
	}
	return out, nil
}

type world struct {
	source              *worlds
	target, left        int
	begun, over, closed bool
}

type scored struct{ *world }

func (s *scored) Score(context.Context) (float64, error) { return 10, nil }

func (w *world) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	if w.source.reset != nil {
		w.source.reset(ctx)
	}
	low := 0
	for name, v := range s.Task.Fields {
		n, ok := v.(float64)
		if name != "low" || !ok {
			return nil, fmt.Errorf("the environment's reset has no %q", name)
		}
		low = int(n)
	}
	w.target = low + rand.New(rand.NewSource(s.Seed)).Intn(10-low)
	w.left, w.begun, w.over = 3, true, false
	return environments.Text("Guess a digit."), nil
}

func (w *world) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if w.source.step != nil {
		return w.source.step(ctx, w, a)
	}
	if !w.begun || w.over || w.closed {
		return environments.Result{}, errors.New("a step without an episode")
	}
	text := a.Text
	if a.Name == "guess" {
		var c struct{ Digit json.Number }
		if err := json.Unmarshal(a.Arguments, &c); err != nil {
			return environments.Result{}, err
		}
		text = c.Digit.String()
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return environments.Result{Observation: environments.Text("not a digit: " + text), Failure: trajectory.FailurePolicy}, nil
	}
	w.left--
	r := environments.Result{Observation: environments.Text("higher"), Anchor: fmt.Sprintf("left %d", w.left), Info: map[string]any{"left": float64(w.left)}}
	switch {
	case n == w.target:
		r.Observation, r.Reward, r.Terminated, r.Success = environments.Text("right"), 1, true, true
	case n > w.target:
		r.Observation = environments.Text("lower")
	}
	r.Truncated = !r.Terminated && w.left == 0
	w.over = r.Over()
	return r, nil
}

func (w *world) Close() error {
	if w.closed {
		w.source.twice.Add(1)
	}
	w.closed = true
	w.source.closed.Add(1)
	return nil
}

// withTools is the same world with a tool of its own.
func withTools() environments.Spec {
	return environments.Spec{Tools: []tools.Spec{{
		Name: "guess", Description: "guesses", Parameters: json.RawMessage(`{"type":"object","properties":{"digit":{"type":"integer"}},"required":["digit"],"additionalProperties":false}`),
	}}}
}

// serve offers a source, and sees at the end that every environment was closed once.
func serve(t *testing.T, s *worlds, o ServerOptions) (*Server, string) {
	t.Helper()
	v, err := NewServer(s, o)
	require.NoError(t, err)
	h := httptest.NewServer(v)
	t.Cleanup(func() {
		_ = v.Drain(0) // some tests leave sessions to it
		h.Close()
		require.Equal(t, s.made.Load(), s.closed.Load(), "every environment that was made was closed")
		require.Zero(t, s.twice.Load(), "no environment was closed twice")
	})
	return v, h.URL
}

// endless is a source whose tasks have no end. It counts how many requests for tasks there are at once.
type endless struct {
	worlds
	now, most atomic.Int64
}

func (s *endless) Tasks(split string, n int) ([]trajectory.Task, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	out := make([]trajectory.Task, n)
	for i := range out {
		out[i] = trajectory.Task{ID: split + "-" + strconv.Itoa(i)}
	}
	if n == 3 {
		time.Sleep(5 * time.Millisecond) // so that two at once would meet
	}
	return out, nil
}

// serveHandler offers a server whose source is no *worlds.
func serveHandler(t *testing.T, v *Server) (url string) {
	t.Helper()
	h := httptest.NewServer(v)
	t.Cleanup(func() {
		_ = v.Drain(0)
		h.Close()
	})
	return h.URL
}

// client is the kind's source for a job's parameters.
func client(t *testing.T, params map[string]any) environments.Source {
	t.Helper()
	s, err := open(t, params)
	require.NoError(t, err)
	return s
}

func open(t *testing.T, params map[string]any) (environments.Source, error) {
	t.Helper()
	r := environments.NewRegistry()
	require.NoError(t, r.Add(Kind()))
	shared := resources.New(resources.Options{Warn: func(text string) { t.Log("warning: " + text) }})
	s, err := r.Make(t.Context(), shared, "openenv", params)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, s.Close()) })
	}
	return s, err
}

func begin(t *testing.T, s environments.Source) environments.Environment {
	t.Helper()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func start(seed int64, fields map[string]any) environments.Start {
	return environments.Start{Task: trajectory.Task{ID: "t", Fields: fields}, Seed: seed}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 5*time.Millisecond, what)
}
