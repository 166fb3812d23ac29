package frozenlake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
)

func TestConformance(t *testing.T) {
	for name, p := range map[string]Params{"firm": {4, 0.8, false, 100, 0}, "slippery": {4, 0.8, true, 100, 0}, "large": {8, 0.8, false, 100, 0}, "progress": {4, 0.8, false, 100, 0.5}} {
		t.Run(name, func(t *testing.T) {
			environmenttest.Run(t, environmenttest.Case{Tasks: 100, Random: 200, Source: func(t testing.TB) environments.Source {
				s, err := New(p)
				require.NoError(t, err)
				return s
			}})
		})
	}
}

func TestParameters(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"size is 2, and must be 3 to 12": {"size": 2}, "frozen is 1, and must be 0.5 to 0.95": {"frozen": 1}, "steps is 15, and must be 16": {"steps": 15},
		"progress is 1, and must be 0 to 0.9": {"progress": 1}, `unknown field "slipery"`: {"slipery": true},
	} {
		_, err := Kind().New(t.Context(), nil, params)
		require.ErrorContains(t, err, want)
	}
	s, err := New(Params{Size: 3, Frozen: 0.8, Steps: 20})
	require.NoError(t, err)
	_, err = s.(environments.Tasker).Tasks(environments.Train, 10000)
	require.ErrorContains(t, err, "tasks and 10000 are asked for")
}

// A slip goes to each side as often as straight on.
func TestSlips(t *testing.T) {
	w := &world{p: Params{Slippery: true}, seed: 3}
	var n [3]int
	for step := range 3000 {
		n[w.slip(step)+1]++
	}
	for _, k := range n {
		require.InDelta(t, 1000, k, 100)
	}
}

// With the parameter progress, what is paid for coming nearer and the goal's reward add up to 1 on every way to the goal. A step back costs what it
// had earned; a wall, a hole and what is no action are worth nothing.
func TestProgress(t *testing.T) {
	w := &world{p: Params{Size: 3, Frozen: 0.8, Steps: 20, Progress: 0.4}, lake: []byte("SFFFHFFFG")}
	pay := func(actions ...string) (rewards []float64, last environments.Result) {
		w.at, w.steps = 0, 0
		for _, a := range actions {
			r, err := w.Step(t.Context(), environments.Action{Text: a})
			require.NoError(t, err)
			rewards, last = append(rewards, r.Reward), r
		}
		return rewards, last
	}
	rewards, last := pay("down", "up", "right", "right", "up", "jump", "down", "down")
	require.InDeltaSlice(t, []float64{0.1, -0.1, 0.1, 0.1, 0, 0, 0.1, 0.7}, rewards, 1e-12)
	require.True(t, last.Success)
	rewards, last = pay("right", "down")
	require.InDeltaSlice(t, []float64{0.1, 0}, rewards, 1e-12)
	require.True(t, last.Terminated)
	require.False(t, last.Success)
}
