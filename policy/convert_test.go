package policy

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
)

// TestConvert: the small GGUF models of modelfile's goldens become folders with the tensors that transformers would make
// of them, and a configuration that reads the same.
func TestConvert(t *testing.T) {
	for _, name := range []string{"llama", "qwen2", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join("..", "modelfile", "testdata", "gguf", name+".gguf")
			dir := filepath.Join(t.TempDir(), name)
			require.NoError(t, Convert(source, dir, ""))
			from, err := modelfile.Open(source)
			require.NoError(t, err)
			defer from.Close()
			to, err := modelfile.Open(dir)
			require.NoError(t, err)
			defer to.Close()
			require.ElementsMatch(t, from.Names(), to.Names())
			for _, tensor := range from.Names() {
				a, err := from.Tensor(tensor)
				require.NoError(t, err)
				b, err := to.Tensor(tensor)
				require.NoError(t, err)
				require.Equal(t, modelfile.F32, b.DType)
				x, err := a.Float32()
				require.NoError(t, err)
				y, err := b.Float32()
				require.NoError(t, err)
				require.Equal(t, x, y, tensor)
			}
			config, err := from.Config()
			require.NoError(t, err)
			again, err := to.Config()
			require.NoError(t, err)
			require.Equal(t, modelConfig(config), modelConfig(again))
			require.Equal(t, config.EOS, again.EOS)
			text, err := LoadText(dir)
			require.NoError(t, err)
			require.Equal(t, "{{ messages }}", text.ChatTemplate)
			require.Equal(t, []int32{14}, text.StopIDs)
		})
	}
}

func TestCommonType(t *testing.T) {
	params := parameterList(&modelfile.Config{VocabSize: 1, HiddenSize: 1, NumLayers: 0, TieWordEmbeddings: false})
	for _, c := range []struct{ a, b, want modelfile.DType }{
		{modelfile.BF16, modelfile.BF16, modelfile.BF16}, {modelfile.BF16, modelfile.F16, modelfile.F32}, {modelfile.F64, modelfile.F64, modelfile.F32},
	} {
		w := fakeWeights{tensor(embedding, c.a, nil, 1, 1), tensor("model.norm.weight", modelfile.F32, nil, 1), tensor(head, c.b, nil, 1, 1)}
		got, err := commonType(w, params)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}
