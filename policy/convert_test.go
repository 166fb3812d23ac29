package policy

import (
	"io"
	"os"
	"path/filepath"
	"strings"
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

// Norms and biases are often stored in more bits than the matrices: without a type they are converted to no smaller one.
func TestConvertRoundsNothing(t *testing.T) {
	mixed := filepath.Join(t.TempDir(), "mixed")
	require.NoError(t, Convert(filepath.Join("..", "modelfile", "testdata", "gguf", "qwen2.gguf"), mixed, ""))
	model, err := modelfile.Open(mixed)
	require.NoError(t, err)
	var weights []modelfile.Source
	for _, name := range model.Names() {
		tensor, err := model.Tensor(name)
		require.NoError(t, err)
		values, err := tensor.Float32()
		require.NoError(t, err)
		dtype := modelfile.BF16
		switch {
		case strings.HasSuffix(name, "norm.weight"):
			dtype = modelfile.F32
			values[0] = 1.0001220703125 // neither a BF16 nor an F16
		case strings.HasSuffix(name, ".bias"):
			dtype = modelfile.F16
			values[0] = 1.0009765625 // no BF16
		}
		data, err := modelfile.Encode(nil, values, dtype)
		require.NoError(t, err)
		weights = append(weights, modelfile.Source{Name: name, DType: dtype, Shape: tensor.Shape, Write: func(w io.Writer) error { _, err := w.Write(data); return err }})
	}
	require.NoError(t, model.Close())
	require.NoError(t, modelfile.WriteSafetensors(filepath.Join(mixed, "model.safetensors"), nil, weights))
	for _, c := range []struct{ given, matrix, norm, bias modelfile.DType }{
		{"", modelfile.BF16, modelfile.F32, modelfile.F32}, {modelfile.F16, modelfile.F16, modelfile.F16, modelfile.F16},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		require.NoError(t, Convert(mixed, dir, c.given))
		from, err := modelfile.Open(mixed)
		require.NoError(t, err)
		defer from.Close()
		to, err := modelfile.Open(dir)
		require.NoError(t, err)
		defer to.Close()
		for _, name := range from.Names() {
			want := c.matrix
			switch {
			case strings.HasSuffix(name, "norm.weight"):
				want = c.norm
			case strings.HasSuffix(name, ".bias"):
				want = c.bias
			}
			got, err := to.Tensor(name)
			require.NoError(t, err)
			require.Equal(t, want, got.DType, name)
			if c.given != "" {
				continue
			}
			x, err := got.Float32()
			require.NoError(t, err)
			stored, err := from.Tensor(name)
			require.NoError(t, err)
			y, err := stored.Float32()
			require.NoError(t, err)
			require.Equal(t, y, x, name)
		}
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

// A folder within another one that is being written is written in place, so that nothing stays outside of it when the process is killed.
func TestWriteLeavesNothingBesideItsFolder(t *testing.T) {
	files, err := modelfile.Open(filepath.Join("..", "modelfile", "testdata", "gguf", "llama.gguf"))
	require.NoError(t, err)
	defer files.Close()
	var f folder
	f.config, f.text, f.kept, err = loadFiles(files)
	require.NoError(t, err)
	parent := t.TempDir()
	dir := filepath.Join(parent, "model")
	require.NoError(t, os.Mkdir(dir, 0o755))
	weights := convertSources(files, parameterList(f.config), modelfile.F32, modelfile.F32)
	written := 0
	for i, s := range weights {
		weights[i].Write = func(to io.Writer) error {
			beside, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Len(t, beside, 1)
			written++
			return s.Write(to)
		}
	}
	require.NoError(t, f.write(dir, modelfile.F32, weights))
	require.Equal(t, len(weights), written)
	again, err := modelfile.Open(dir)
	require.NoError(t, err)
	defer again.Close()
	require.ElementsMatch(t, files.Names(), again.Names())
	_, err = LoadText(dir)
	require.NoError(t, err)
}
