package frozenlake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
)

func TestConformance(t *testing.T) {
	for name, p := range map[string]Params{"firm": {4, 0.8, false, 100}, "slippery": {4, 0.8, true, 100}, "large": {8, 0.8, false, 100}} {
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
		`unknown field "slipery"`: {"slipery": true},
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
