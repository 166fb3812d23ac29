package voxel

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/trajectory"
)

func place(name, at string) environments.Action {
	return environments.Action{Name: name, Arguments: json.RawMessage(at)}
}

// An action that is not possible counts as a step: the episode is cut after as many as any other, and what stands there is checked then.
func TestImpossibleActionsCount(t *testing.T) {
	w := &world{p: Params{4, 5}}
	_, err := w.Reset(t.Context(), environments.Start{Seed: 1})
	require.NoError(t, err)
	right := w.want.sorted()[0]
	at, err := json.Marshal(map[string]int{"x": right.X, "y": right.Y, "z": right.Z})
	require.NoError(t, err)
	r, err := w.Step(t.Context(), place("place", string(at)))
	require.NoError(t, err)
	require.Empty(t, r.Failure)
	for n, a := range []environments.Action{place("place", string(at)), place("remove", `{"x":9,"y":0,"z":0}`), place("dance", `{}`), place("remove", `{"x":7,"y":7,"z":7}`)} {
		r, err := w.Step(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Equal(t, n == 3, r.Truncated, "step %d", n+2)
		if r.Truncated {
			require.InDelta(t, check(w.got, w.want), r.Reward, 0)
			require.Positive(t, r.Reward)
		}
	}
}

// The site as it was at the start has the name of the start: after an action that is not possible, and after blocks that were removed again.
func TestAnchorOfTheStart(t *testing.T) {
	s, err := New(Params{24, 100})
	require.NoError(t, err)
	m, err := environments.Open(s, nil, environments.Options{Pool: pool.Options{Size: 1}})
	require.NoError(t, err)
	defer m.Close()
	e, err := m.Begin(t.Context(), pool.Owner{Name: "test"}, environments.Start{Seed: 1})
	require.NoError(t, err)
	defer e.End()
	first := e.Anchor()
	for _, c := range []struct {
		a     environments.Action
		start bool
	}{{place("remove", `{"x":1,"y":0,"z":0}`), true}, {place("place", `{"x":1,"y":0,"z":0}`), false}, {place("remove", `{"x":1,"y":0,"z":0}`), true}} {
		r, err := e.Step(t.Context(), c.a)
		require.NoError(t, err)
		require.Equal(t, c.start, r.Anchor == first, "%s %s", c.a.Name, r.Anchor)
	}
}
