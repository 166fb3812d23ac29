package webshop

import (
	"testing"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
)

func TestConformance(t *testing.T) {
	for name, params := range map[string]map[string]any{"generated": {"products": 1000}} {
		t.Run(name, func(t *testing.T) {
			environmenttest.Run(t, environmenttest.Case{Source: func(t testing.TB) environments.Source { return open(t, params) }})
		})
	}
}
