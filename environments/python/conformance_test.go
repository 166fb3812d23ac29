package pyenv_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
)

func kill(e environments.Environment) error {
	k, ok := e.(interface{ Kill() })
	if !ok {
		return errors.New("it has no process")
	}
	k.Kill()
	return nil
}

// A class of each protocol keeps what environments promise.
func TestConformance(t *testing.T) {
	needPython(t)
	for class, c := range map[string]environmenttest.Case{
		"Words": {}, "OldWords": {}, "ArenaWords": {}, "LaterWords": {}, "OpenWords": {},
		"Calls": {Actions: []environments.Action{{Name: "say", Arguments: json.RawMessage(`{"word": "hello"}`)}}},
	} {
		t.Run(class, func(t *testing.T) {
			c.Source = func(t testing.TB) environments.Source {
				s, err := pyenv.Kind().New(t.Context(), resources.New(resources.Options{}), map[string]any{"class": worlds + ":" + class, "deterministic": true, "success": 1})
				require.NoError(t, err)
				return s
			}
			c.Tasks, c.Random, c.Kill, c.Parallel = 4, 4, kill, true
			environmenttest.Run(t, c)
		})
	}
}
