package pyenv_test

import (
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// A Gymnasium environment from PyPI needs its id and five lines of a job: the job is valid, and what it names is played.
func TestGymnasiumByID(t *testing.T) {
	t.Parallel()
	j, err := job.Load("../../examples/worlds/gymnasium.yaml")
	require.NoError(t, err)
	require.Equal(t, "python", j.Environment.Kind)
	interpreter := os.Getenv("AGENTFLY_ENV_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_ENV_PYTHON names no Python with gymnasium; make test-env installs one")
	}
	params := maps.Clone(j.Environment.Params)
	params["interpreter"] = interpreter
	s := source(t, params)
	require.True(t, s.Spec().Deterministic)
	e := environment(t, s)
	got, err := e.Reset(t.Context(), begin(1, nil))
	require.NoError(t, err)
	require.Equal(t, environments.Text("0"), got)
	var r environments.Result
	for _, action := range []string{"down", "down", "right", "right", "down", "right"} { // around the holes of the map of 4 × 4
		require.False(t, r.Over())
		r = step(t, e, action)
		require.Empty(t, r.Failure)
	}
	require.Equal(t, environments.Text("15"), r.Observation)
	require.True(t, r.Terminated)
	require.Equal(t, 1.0, r.Reward)

	_, err = e.Reset(t.Context(), begin(1, nil))
	require.NoError(t, err)
	step(t, e, "down")
	r = step(t, e, "right") // into a hole
	require.True(t, r.Terminated)
	require.Zero(t, r.Reward)
}
