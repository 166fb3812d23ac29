// Package policytest makes the small policies that tests of several packages compute with.
//
// It does not test anything itself.
package policytest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/policy"
)

// Tiny is a model of two layers.
var Tiny = policy.ScratchConfig{HiddenSize: 32, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, MaxPositions: 64, InitStd: 0.1}

const (
	Alphabet = "0123456789+="                                          // of Make's vocabulary
	Template = "{% for m in messages %}{{ m['content'] }}{% endfor %}" // its chat template
)

// Device is where the tests compute: scripts/gpu_check.sh sets cuda.
func Device() string {
	if d := os.Getenv("AGENTFLY_TEST_DEVICE"); d != "" {
		return d
	}
	return "cpu"
}

// Make makes a Tiny policy with the weights of a seed, which is closed with the test.
func Make(t *testing.T, seed uint64) *policy.Policy {
	t.Helper()
	return closed(t)(policy.Scratch(Tiny, Alphabet, Template, seed, policy.Options{Device: Device()}))
}

// Load loads a folder.
func Load(t *testing.T, dir string) *policy.Policy {
	t.Helper()
	return closed(t)(policy.Load(dir, policy.Options{Device: Device()}))
}

func closed(t *testing.T) func(*policy.Policy, error) *policy.Policy {
	return func(p *policy.Policy, err error) *policy.Policy {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
}

// Parameters are a policy's values by name.
func Parameters(t *testing.T, p *policy.Policy) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for _, info := range p.Model.Parameters() {
		values, err := p.Model.Parameter(info.Name)
		require.NoError(t, err)
		out[info.Name] = values
	}
	return out
}
