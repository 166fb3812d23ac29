package chess

import (
	"testing"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
)

func TestConformance(t *testing.T) {
	cache := t.TempDir() // puzzles are found once
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source { return open(t, cache, map[string]any{"max_steps": 20}) },
		Tasks:  8,
		Random: 8, // of the puzzles that are found for Tasks
	})
}
