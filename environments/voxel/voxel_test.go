package voxel

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
)

func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{Tasks: 100, Source: func(t testing.TB) environments.Source {
		s, err := New(Params{24, 100})
		require.NoError(t, err)
		return s
	}})
}

// What the checker says of a tower of two: each case is worth its share.
func TestCheck(t *testing.T) {
	want := blocks{{0, 0, 0}: true, {0, 1, 0}: true}
	for name, c := range map[string]struct {
		got    blocks
		reward float64
	}{
		"nothing":        {blocks{}, 0},
		"right":          {blocks{{0, 0, 0}: true, {0, 1, 0}: true}, 1},
		"half":           {blocks{{0, 0, 0}: true}, 0.5},
		"one too many":   {blocks{{0, 0, 0}: true, {0, 1, 0}: true, {0, 2, 0}: true}, 2.0 / 3},
		"in the air":     {blocks{{0, 1, 0}: true}, 0},
		"one in the air": {blocks{{0, 0, 0}: true, {0, 1, 0}: true, {5, 5, 5}: true}, 2.0 / 3 * 2 / 3},
		"elsewhere":      {blocks{{1, 0, 0}: true, {1, 1, 0}: true}, 0},
		"corner":         {blocks{{0, 0, 0}: true, {1, 1, 0}: true}, 1.0 / 3 / 2},
	} {
		require.InDelta(t, c.reward, check(c.got, want), 1e-12, name)
	}
}

func TestParameters(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"size is 3, and must be 4 to 64": {"size": 3}, "steps is 24, and must be 25": {"steps": 24}, `unknown field "sise"`: {"sise": 4},
	} {
		_, err := Kind().New(t.Context(), nil, params)
		require.ErrorContains(t, err, want)
	}
}

// A random policy, which places blocks anywhere until it is done after as many as the mean building has, earns next to nothing.
func TestRandomPolicy(t *testing.T) {
	source, mean := rand.New(rand.NewPCG(1, 2)), 0.0
	w := &world{p: Params{24, 100}}
	for i := range 200 {
		_, err := w.Reset(t.Context(), environments.Start{Seed: int64(i)})
		require.NoError(t, err)
		for range 12 {
			at := fmt.Sprintf(`{"x":%d,"y":%d,"z":%d}`, source.IntN(edge), source.IntN(edge), source.IntN(edge))
			_, err := w.Step(t.Context(), environments.Action{Name: "place", Arguments: json.RawMessage(at)})
			require.NoError(t, err)
		}
		r, err := w.Step(t.Context(), environments.Action{Name: "done"})
		require.NoError(t, err)
		mean += r.Reward / 200
	}
	t.Logf("a random policy: mean reward %.4f", mean)
	require.Less(t, mean, 0.02)
}
