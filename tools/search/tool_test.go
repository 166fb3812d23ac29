package search

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

func TestToolOfAJob(t *testing.T) {
	path := write(t, animals)
	r := resources.New(resources.Options{
		Cache: t.TempDir(), Resolve: func(p string) string { return filepath.Join(filepath.Dir(path), p) }, Warn: func(text string) { t.Error(text) },
	})
	defer func() { require.NoError(t, r.Close()) }()
	catalog := tools.NewCatalog()
	require.NoError(t, catalog.Add(Name, "x", Factory))
	made, err := catalog.Make(t.Context(), r, tools.Ref{Name: Name, Params: map[string]any{"corpus": "corpus.jsonl", "top_k": 2, "max_chars": 20}})
	require.NoError(t, err)
	require.Len(t, made, 1)
	registry := tools.NewRegistry(tools.Options{})
	require.NoError(t, registry.Register(made...))
	spec := registry.Specs()[0]
	require.Equal(t, "search", spec.Name)
	require.True(t, spec.Deterministic && spec.Idempotent && !spec.Stateful && !spec.Terminal)
	call := func(arguments string) trajectory.ToolResult {
		return registry.Invoke(t.Context(), "t", trajectory.ToolCall{Name: "search", Arguments: []byte(arguments)})
	}
	require.Equal(t, "Doc 1(Title: Dogs) A dog chased the ca…\nDoc 2(Title: Cats) The cat sat on the …", call(`{"query": "dog: \"cat\""}`).Observation)
	require.Equal(t, "No passage matches; try other words.", call(`{"query": "("}`).Observation)
	require.True(t, call(`{}`).Failed)
	require.Contains(t, call(`{}`).Observation, "query")
	o, err := made[0].Call(t.Context(), tools.Call{Arguments: []byte(`{"query": "sea"}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"fish"}, o.Info["ids"])
	require.Len(t, o.Info["scores"], 1)
}

func TestParamsOfAJob(t *testing.T) {
	path := write(t, animals)
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{nil, "no file is named; give corpus: FILE"},
		{map[string]any{"corpus": path, "k": 3}, `unknown field "k"`},
		{map[string]any{"corpus": 3}, "corpus must be a file or a list of files"},
		{map[string]any{"corpus": path, "top_k": 0}, "top_k is 0; allowed is 1 to 100"},
		{map[string]any{"corpus": path, "max_chars": -1}, "max_chars is -1; allowed is 0 (all) or more"},
		{map[string]any{"corpus": []any{path, path}}, "is already that of " + path + ", line 1"},
		{map[string]any{"corpus": path, "fields": []any{"id"}}, `there is no field "id"`},
	} {
		r := resources.New(resources.Options{Cache: t.TempDir()})
		_, err := Factory(t.Context(), r, c.params)
		require.ErrorContains(t, err, c.want)
		require.NoError(t, r.Close())
	}
}

// The built index and the corpus are what the model must not see the path of.
func TestModelSeesNoPath(t *testing.T) {
	path := write(t, animals)
	r := resources.New(resources.Options{Cache: t.TempDir()})
	made, err := Factory(t.Context(), r, map[string]any{"corpus": path})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	_, err = made[0].Call(t.Context(), tools.Call{Arguments: []byte(`{"query": "sea"}`)})
	require.EqualError(t, err, "search: the index is closed")
	require.NotContains(t, err.Error(), string(os.PathSeparator))
}
