package environments

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// reached is a world whose steps give one result. It keeps states, and has a method of its own, as every Python class.
type reached struct {
	world
	states int
}

func (r *reached) Call(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`1`), nil
}

func (r *reached) State(context.Context) (json.RawMessage, error) {
	r.states++
	return json.RawMessage(`1`), nil
}
func (r *reached) Restore(context.Context, json.RawMessage) error { return nil }

// breaker is a tool whose process is gone behind the step that it made.
type breaker struct{ calls *int }

func (breaker) Spec() tools.Spec {
	return tools.Spec{
		Name: "break", Environment: "test", Parameters: json.RawMessage(`{"type":"object","properties":{}}`), Idempotent: true, Limits: tools.Limits{Retries: 3},
	}
}

func (b breaker) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	if *b.calls++; *b.calls > 1 {
		return tools.Observation{Text: "again"}, nil
	}
	_, err := c.Environment(ctx, "step", json.RawMessage(`{"action":"on"}`))
	return tools.Observation{}, cmp.Or(err, error(&tools.BrokenError{Text: "its process ended"}))
}

// A call that has acted in the environment is not made again where its tool breaks behind that: what the step was paid, and that it was made, would be
// lost.
func TestACallThatActedIsNotMadeAgain(t *testing.T) {
	s := NewStage(open(t, &source{make: func() Environment { return new(world) }}, Options{}))
	r := tools.NewRegistry(tools.Options{})
	calls := 0
	require.NoError(t, r.Register(s.Lend(breaker{&calls})))
	_, err := s.Begin(t.Context(), pool.Owner{Name: "t"}, Start{})
	require.NoError(t, err)
	defer s.End("t")
	got := r.Invoke(t.Context(), "t", trajectory.ToolCall{Name: "break", Arguments: json.RawMessage(`{}`)})
	require.Equal(t, []any{1, 0, true, 1.0}, []any{calls, got.Retries, got.Failed, got.Outcome.Reward})
}

// looker is a tool that asks the environment and does not step.
type looker struct{}

func (looker) Spec() tools.Spec {
	return tools.Spec{Name: "look", Environment: "test", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)}
}

func (looker) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	out, err := c.Environment(ctx, "call", json.RawMessage(`{"name":"taken","arguments":{}}`))
	return tools.Observation{Text: string(out)}, err
}

// A tool that only looks, behind an action in the same turn, leaves the end and the success of that action, and a state that was restored keeps them.
func TestALookLeavesWhatTheLastStepReached(t *testing.T) {
	for name, last := range map[string]Result{
		"reached":   {Reward: 1, Terminated: true, Success: true},
		"truncated": {Truncated: true},
		"goes on":   {Success: true},
		"nothing":   {},
	} {
		t.Run(name, func(t *testing.T) {
			last.Observation = Text("there")
			one := &reached{world: world{step: func(context.Context, Action) (Result, error) { return last, nil }}}
			s := NewStage(open(t, &source{make: func() Environment { return one }}, Options{}))
			r := tools.NewRegistry(tools.Options{})
			require.NoError(t, r.Register(s.Tools()...))
			require.NoError(t, r.Register(s.Lend(looker{})))
			look := func(name string) *trajectory.Outcome {
				return r.Invoke(t.Context(), name, trajectory.ToolCall{Name: "look", Arguments: json.RawMessage(`{}`)}).Outcome
			}
			_, err := s.Begin(t.Context(), pool.Owner{Name: "t"}, Start{})
			require.NoError(t, err)
			require.False(t, look("t").Success, "before anything was done")
			states := one.states
			acted := r.Invoke(t.Context(), "t", trajectory.ToolCall{Name: "act", Arguments: json.RawMessage(`{"action":"on"}`)}).Outcome
			looked := look("t")
			require.Equal(t, []bool{last.Terminated, last.Truncated, last.Success}, []bool{looked.Terminated, looked.Truncated, looked.Success})
			require.Zero(t, looked.Reward, "which the action was paid")
			if s.End("t"); last.Over() {
				require.Equal(t, states, one.states, "an episode that is over is not asked for its state")
				return
			}
			_, err = s.Begin(t.Context(), pool.Owner{Name: "again"}, Start{})
			require.NoError(t, err)
			defer s.End("again")
			require.NoError(t, s.Restore(t.Context(), "again", acted.State))
			require.Equal(t, last.Success, look("again").Success)
		})
	}
}
