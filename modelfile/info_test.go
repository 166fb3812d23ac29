package modelfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	i, err := Describe("testdata/gguf/qwen3.gguf")
	require.NoError(t, err)
	require.Equal(t, `path           testdata/gguf/qwen3.gguf
format         gguf
architecture   Qwen3ForCausalLM
layers         1 of hidden size 64, feed-forward 96
attention      4 heads of 24, 2 key-value heads
vocabulary     16
context        131072 tokens (rope default, theta 500000)
stop ids       [14]
parameters     38.13 k in 13 tensors, 152.5 k bytes as float32
  BF16         6.144 k
  F16          6.144 k
  F32          240
  Q4_0         6.144 k
  Q4_1         3.072 k
  Q5_0         6.144 k
  Q5_1         6.144 k
  Q8_0         4.096 k
tokenizer      gguf gpt2 qwen2
special        eos_token=<|end|> pad_token=<|pad|>
templates      default, tool_use
`, i.String())
	require.Equal(t, int64(38128), i.Parameters)
	require.Equal(t, int64(6144), i.Types["BF16"])
}

func TestDescribeTellsWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type": "phi3"}`), 0o644))
	i, err := Describe(dir)
	require.NoError(t, err)
	require.Contains(t, i.Problem, `model_type is "phi3", which is not supported`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), edit(t, "llama", nil), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pytorch_model.bin"), nil, 0o644))
	i, err = Describe(dir)
	require.NoError(t, err)
	require.Equal(t, "there are no weights; pytorch_model.bin is not read, because unpickling runs code: convert it to safetensors with transformers' save_pretrained", i.Problem)
	_, err = Describe(filepath.Join(dir, "nothing"))
	require.Error(t, err)
}

// TestOpenDir: what may stand in a folder without safetensors.
func TestOpenDir(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	require.ErrorContains(t, err, "holds no config.json, no tokenizer.json and 0 .gguf files")
	data, err := os.ReadFile("testdata/gguf/qwen2.gguf")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.gguf"), data, 0o644))
	m, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, "gguf", m.Format)
	require.Equal(t, filepath.Join(dir, "a.gguf"), m.Path)
	require.NoError(t, m.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.gguf"), data, 0o644))
	_, err = Open(dir)
	require.ErrorContains(t, err, "2 .gguf files; expected a model folder or name one file")

	// a tokenizer alone is enough
	only := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(only, "tokenizer.json"), []byte("{}"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(only, "tokenizer_config.json"), []byte(`{
		"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null, "add_bos_token": true,
		"chat_template": [{"name": "default", "template": "a"}, {"name": "rag", "template": "b"}]}`), 0o644))
	m, err = Open(only)
	require.NoError(t, err)
	source, err := m.Tokenizer()
	require.NoError(t, err)
	require.Equal(t, "{}", string(source.JSON))
	special, err := m.SpecialTokens()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, special)
	templates, err := m.ChatTemplates()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"default": "a", "rag": "b"}, templates)
	require.NoError(t, os.WriteFile(filepath.Join(only, "chat_template.jinja"), []byte("c"), 0o644))
	templates, err = m.ChatTemplates()
	require.NoError(t, err)
	require.Equal(t, "c", templates["default"]) // the file wins, as in transformers
	_, err = m.Config()
	require.ErrorContains(t, err, "has no config.json")
	_, err = m.Tensor("w")
	require.ErrorContains(t, err, "holds no weights")
	require.False(t, m.HasWeights())
	require.NoError(t, m.Close())
}
