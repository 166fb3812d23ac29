//go:build torch

package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// The parameters that are held against weights before a model is made are those of the model.
func TestParametersAreTheModels(t *testing.T) {
	base, err := ScratchConfig{HiddenSize: 32, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, MaxPositions: 32, InitStd: 0.1}.config(11)
	require.NoError(t, err)
	for name, change := range map[string]func(c *modelfile.Config){
		"llama":   func(*modelfile.Config) {},
		"untied":  func(c *modelfile.Config) { c.TieWordEmbeddings = !c.TieWordEmbeddings },
		"biases":  func(c *modelfile.Config) { c.QKVBias, c.OBias, c.MLPBias = true, true, true },
		"qwen3":   func(c *modelfile.Config) { c.QKNorm = true },
		"heads":   func(c *modelfile.Config) { c.NumKVHeads = 4 },
		"shallow": func(c *modelfile.Config) { c.NumLayers = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := *base
			change(&c)
			m, err := Options{Device: "cpu"}.model(&c)
			require.NoError(t, err)
			defer m.Close()
			byName := func(a, b cgo.ParameterInfo) int { return strings.Compare(a.Name, b.Name) }
			var want []cgo.ParameterInfo
			for _, p := range m.Parameters() {
				want = append(want, cgo.ParameterInfo{Name: p.Name, Shape: p.Shape})
			}
			got := Parameters(&c)
			slices.SortFunc(want, byName)
			slices.SortFunc(got, byName)
			require.Equal(t, want, got)
		})
	}
}
