package engines_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
)

func TestRegistry(t *testing.T) {
	r := engines.NewRegistry()
	made := scripted.New(scripted.Options{})
	defer made.Close()
	var got engines.Setup
	mine := func(_ context.Context, s engines.Setup) (engines.Engine, error) {
		got = s
		return made, nil
	}
	require.NoError(t, r.Add("mine", "answers what a script says", mine))
	require.NoError(t, r.Add("broken", "", func(context.Context, engines.Setup) (engines.Engine, error) {
		return nil, errors.New("no port is free")
	}))
	require.NoError(t, r.Add("nothing", "", func(context.Context, engines.Setup) (engines.Engine, error) { return nil, nil }))
	require.NoError(t, r.Add("panics", "", func(context.Context, engines.Setup) (engines.Engine, error) { panic("oh") }))
	require.Equal(t, []string{"broken", "local", "mine", "nothing", "openai", "panics", "vllm"}, r.Names())
	require.Equal(t, "answers what a script says", r.Description("mine"))
	require.NotEmpty(t, r.Description("vllm"))

	e, err := r.Make(t.Context(), "mine", engines.Setup{MaxContext: 64})
	require.NoError(t, err)
	require.Same(t, made, e)
	require.Equal(t, 64, got.MaxContext)
	for name, want := range map[string]string{
		"broken": "engines: broken: no port is free", "nothing": "engines: nothing: its factory returned no engine", "panics": "its factory panicked: oh",
		"vllm": "engines: vllm is made by package orchestrator/weights",
		"mien": `engines: unknown kind "mien", known are broken, local, mine, nothing, openai, panics, vllm; nearest: mine`,
	} {
		_, err := r.Make(t.Context(), name, engines.Setup{})
		require.ErrorContains(t, err, want)
	}
	require.EqualError(t, r.Add("mine", "", mine), `engines: register "mine": the name is already registered; give one of the two another name`)
	require.EqualError(t, r.Add("local", "", mine), `engines: register "local": the name is already registered; give one of the two another name`)
	require.ErrorContains(t, r.Add("a b", "", mine), "a name has 1 to 64 letters")
	require.ErrorContains(t, r.Add("none", "", nil), "the factory is nil")
}

// What registers nothing has the program's own kinds.
func TestNoRegistry(t *testing.T) {
	var r *engines.Registry
	require.NoError(t, r.Check("openai"))
	require.EqualError(t, r.Check("mine"), `engines: unknown kind "mine", known are local, openai, vllm`)
	require.Empty(t, r.Description("mine"))
}

// A job closes its engine, so one engine serves one job.
func TestAnEngineServesOneJob(t *testing.T) {
	r := engines.NewRegistry()
	e := scripted.New(scripted.Options{})
	defer e.Close()
	require.ErrorContains(t, r.AddEngine("one", nil), "the engine is nil")
	require.NoError(t, r.AddEngine("one", e))
	_, err := r.Make(t.Context(), "one", engines.Setup{Params: map[string]any{"speed": 3}})
	require.ErrorContains(t, err, `unknown field "speed"`)
	got, err := r.Make(t.Context(), "one", engines.Setup{})
	require.NoError(t, err)
	require.Same(t, e, got)
	_, err = r.Make(t.Context(), "one", engines.Setup{})
	require.ErrorContains(t, err, "another job of this process had the engine and closed it; register a factory")
}
