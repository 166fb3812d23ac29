package openenv

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/environments/sokoban"
	"github.com/agentfly/agentfly/resources"
)

// The kind keeps what every kind promises, over its own server and Sokoban.
func TestConformance(t *testing.T) {
	served, err := sokoban.New(sokoban.Params{Size: 6, Boxes: 1, Steps: 60})
	require.NoError(t, err)
	v, err := NewServer(served, ServerOptions{Name: "sokoban"})
	require.NoError(t, err)
	h := httptest.NewServer(v)
	t.Cleanup(func() {
		_ = v.Drain(time.Second)
		h.Close()
		require.NoError(t, served.Close())
	})
	environmenttest.Run(t, environmenttest.Case{
		Actions: []environments.Action{{Text: "up"}, {Text: "left"}, {Text: "down"}, {Text: "right"}, {Text: "right"}, {Text: "up"}}, // each is possible, also against a wall
		TooMany: 200_000,
		Source: func(t testing.TB) environments.Source {
			r := environments.NewRegistry()
			require.NoError(t, r.Add(Kind()))
			s, err := r.Make(t.Context(), resources.New(resources.Options{}), "openenv", map[string]any{"hosts": []any{h.URL}})
			require.NoError(t, err)
			return s
		},
	})
}
