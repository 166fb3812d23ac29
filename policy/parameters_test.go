//go:build torch

package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// TestParameterList: what Convert writes without libtorch is what the C++ model has.
func TestParameterList(t *testing.T) {
	for _, c := range []modelfile.Config{
		{QKVBias: true, TieWordEmbeddings: true},
		{QKVBias: true, OBias: true, MLPBias: true},
		{QKNorm: true},
	} {
		c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumLayers, c.NumHeads, c.NumKVHeads, c.HeadDim = 11, 12, 20, 2, 4, 2, 6
		c.RMSNormEps, c.Rope = 1e-6, modelfile.Rope{Type: "default", Theta: 10000}
		m, err := cgo.NewModel(modelConfig(&c), "cpu")
		require.NoError(t, err)
		require.ElementsMatch(t, m.Parameters(), parameterList(&c))
		require.NoError(t, m.Close())
	}
}
