package pyenv_test

import (
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// withGymnasium is an interpreter that has gymnasium.
func withGymnasium(t *testing.T) string {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_ENV_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_ENV_PYTHON names no Python with gymnasium; make test-env installs one")
	}
	return interpreter
}

// A Gymnasium environment from PyPI needs its id and five lines of a job: the job is valid, and what it names is played.
func TestGymnasiumByID(t *testing.T) {
	t.Parallel()
	j, err := job.Load("../../examples/worlds/gymnasium.yaml")
	require.NoError(t, err)
	require.Equal(t, "python", j.Environment.Kind)
	interpreter := withGymnasium(t)
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

// Spaces whose actions are arrays take no number that is not exactly one of theirs, as Discrete does: it would be changed without a word.
func TestActionsOfArrays(t *testing.T) {
	t.Parallel()
	interpreter := withGymnasium(t)
	for class, c := range map[string]struct{ did, none []string }{
		"Multi":   {[]string{"[0, 2]"}, []string{"[0.9, 1.7]", `["1", "2"]`, "[true, 2]", "[1.0, 2]", "[1, 3]", "[1, null]", "[[1, 2], [0, 1]]", "[1e999, 0]"}},
		"Binary":  {[]string{"[0, 1]", "[true, false]"}, []string{"[0.5, 1]", "[0, 2]", `["0", "1"]`}},
		"Bytes":   {[]string{"[254, 3]"}, []string{"[254.9, 3]", "[256, 0]", "[-1, 0]", `["1", 0]`}},
		"Floats":  {[]string{"[1, 0.1]", "[-3e38, 0]"}, []string{"[1e999, 0]", "[1e39, 0]", "[true, 0.5]", "[true, 0]", `["1", "2"]`, "[null, 0]"}},
		"Squares": {[]string{"[[1, 0], [0, -1]]", "[1, 0, 0, -1]"}, []string{"[[1, 0], [0]]", "[1, 0]", "[[2, 0], [0, 0]]"}},
		"Both":    {[]string{`{"a": 1, "b": [1, 2]}`}, []string{`{"a": 1, "b": [1.5, 2]}`, `{"a": 1}`, `{"a": 1, "b": [1, 2], "c": 3}`, `[1, [1, 2]]`}},
	} {
		s := source(t, map[string]any{"class": "testdata/spaces.py:" + class, "interpreter": interpreter})
		e := environment(t, s)
		_, err := e.Reset(t.Context(), begin(0, nil))
		require.NoError(t, err)
		for _, action := range c.did {
			require.Empty(t, step(t, e, action).Failure, "%s: %s", class, action)
		}
		for _, action := range c.none {
			r := step(t, e, action)
			assert.Equal(t, trajectory.FailurePolicy, r.Failure, "%s: %s: %s", class, action, environments.TextOf(r.Observation))
		}
	}
}
