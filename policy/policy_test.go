//go:build torch

package policy_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
)

func TestScratchIsSeeded(t *testing.T) {
	a, b, c := policytest.Parameters(t, policytest.Make(t, 1)), policytest.Parameters(t, policytest.Make(t, 1)), policytest.Parameters(t, policytest.Make(t, 2))
	require.Equal(t, a, b)
	require.NotEqual(t, a["model.embed_tokens.weight"], c["model.embed_tokens.weight"])
	require.NotContains(t, a, "lm_head.weight")
}

func TestSaveAndLoad(t *testing.T) {
	p := policytest.Make(t, 1)
	dir := filepath.Join(t.TempDir(), "last")
	require.NoError(t, p.SaveHF(dir, modelfile.F32))
	q := policytest.Load(t, dir)
	require.Equal(t, policytest.Parameters(t, p), policytest.Parameters(t, q))
	require.Equal(t, policytest.Template, q.ChatTemplate)
	require.Equal(t, p.SpecialTokens, q.SpecialTokens)
	require.Equal(t, []int32{2}, q.StopIDs)
	require.Equal(t, p.Tokenizer.Encode("<bos>12+3="), q.Tokenizer.Encode("<bos>12+3="))
	ids := []int32{1, 4, 13, 5, 14, 8, 2}
	require.Equal(t, logprobsOf(t, p, ids), logprobsOf(t, q, ids))

	// bfloat16 weights are the rounded ones, and are read as such
	require.NoError(t, p.SaveHF(dir, modelfile.BF16))
	for name, values := range policytest.Parameters(t, policytest.Load(t, dir)) {
		exact, err := p.Model.Parameter(name)
		require.NoError(t, err)
		for i := range values {
			require.InDelta(t, exact[i], values[i], 0.0040*max(1e-9, float64(max(exact[i], -exact[i]))), name)
		}
	}
	require.ErrorContains(t, p.SaveHF(dir, "Q4"), `cannot save weights as "Q4"; use F32, F16 or BF16`)
}

// TestSaveKeepsTheOriginalsFiles: keys that the program does not know stay, the template is the one trained with.
func TestSaveKeepsTheOriginalsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "original")
	require.NoError(t, policytest.Make(t, 1).SaveHF(dir, modelfile.F32))
	change := func(file string, f func(map[string]any)) {
		data, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		var values map[string]any
		require.NoError(t, json.Unmarshal(data, &values))
		f(values)
		require.NoError(t, modelfile.WriteJSON(filepath.Join(dir, file), values))
	}
	change("config.json", func(v map[string]any) { v["custom_key"], v["torch_dtype"] = []any{"kept"}, "bfloat16" })
	change("generation_config.json", func(v map[string]any) { v["temperature"], v["eos_token_id"] = 0.6, []int{2, 0} })
	change("tokenizer_config.json", func(v map[string]any) {
		v["padding_side"] = "left"
		v["chat_template"] = []any{map[string]string{"name": "default", "template": "old"}, map[string]string{"name": "tool_use", "template": "tools"}}
	})
	require.NoError(t, os.Remove(filepath.Join(dir, "chat_template.jinja")))

	p := policytest.Load(t, dir)
	require.Equal(t, "old", p.ChatTemplate)
	require.Equal(t, []int32{0, 2}, p.StopIDs)
	p.ChatTemplate = "new"
	saved := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, p.SaveHF(saved, modelfile.F32))
	read := func(file string) map[string]any {
		data, err := os.ReadFile(filepath.Join(saved, file))
		require.NoError(t, err)
		var values map[string]any
		require.NoError(t, json.Unmarshal(data, &values))
		return values
	}
	config := read("config.json")
	require.Equal(t, []any{"kept"}, config["custom_key"])
	require.Equal(t, "float32", config["dtype"])
	require.NotContains(t, config, "torch_dtype")
	require.Equal(t, 0.6, read("generation_config.json")["temperature"])
	require.Equal(t, "left", read("tokenizer_config.json")["padding_side"])
	require.Equal(t, "new", read("tokenizer_config.json")["chat_template"])
	m, err := modelfile.Open(saved)
	require.NoError(t, err)
	defer m.Close()
	templates, err := m.ChatTemplates()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"default": "new", "tool_use": "tools"}, templates)
	require.Equal(t, []int32{0, 2}, policytest.Load(t, saved).StopIDs)
}

// TestLoadRefuses: damaged folders give one error that names the file or the tensor, and the C++ side keeps nothing.
func TestLoadRefuses(t *testing.T) {
	source := policytest.Make(t, 1)
	handles := cgo.LiveHandles()
	cases := map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"truncated weights": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 5000))
		}, "model.safetensors: "},
		"no weights":   {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors"))) }, "holds no weights"},
		"no config":    {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "config.json"))) }, "has no config.json"},
		"no tokenizer": {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json"))) }, "has no tokenizer.json"},
		"one layer more": {func(t *testing.T, dir string) {
			replaceText(t, filepath.Join(dir, "config.json"), `"num_hidden_layers": 2`, `"num_hidden_layers": 3`)
		}, "the weights do not fit config.json: model.layers.2.input_layernorm.weight [32] is missing"},
		"one layer less": {func(t *testing.T, dir string) {
			replaceText(t, filepath.Join(dir, "config.json"), `"num_hidden_layers": 2`, `"num_hidden_layers": 1`)
		}, "model.layers.1.input_layernorm.weight is unexpected"},
		"wrong width": {func(t *testing.T, dir string) {
			replaceText(t, filepath.Join(dir, "config.json"), `"intermediate_size": 48`, `"intermediate_size": 64`)
		}, "model.layers.0.mlp.gate_proj.weight has shape [48 32], expected [64 32]"},
		"untied": {func(t *testing.T, dir string) {
			replaceText(t, filepath.Join(dir, "config.json"), `"tie_word_embeddings": true`, `"tie_word_embeddings": false`)
		}, "lm_head.weight [15 32] is missing"},
		"small vocabulary": {func(t *testing.T, dir string) {
			replaceText(t, filepath.Join(dir, "config.json"), `"vocab_size": 15`, `"vocab_size": 9`)
		}, "the tokenizer has 15 tokens, but vocab_size is 9"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "model")
			require.NoError(t, source.SaveHF(dir, modelfile.F32))
			c.damage(t, dir)
			_, err := policy.Load(dir, policy.Options{})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.Equal(t, handles, cgo.LiveHandles())
		})
	}
	_, err := policy.Load(t.TempDir(), policy.Options{Device: "tpu"})
	require.ErrorContains(t, err, "holds no config.json")
}

func replaceText(t *testing.T, path, from, to string) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), from)
	require.NoError(t, modelfile.WriteAtomic(path, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Replace(string(data), from, to, 1))
		return err
	}))
}

// TestConvertedModels: a GGUF and the folder converted from it score the same; AGENTFLY_KEEP_CHECKPOINT keeps the folders
// for scripts/goldens/check_checkpoint.py.
func TestConvertedModels(t *testing.T) {
	base := os.Getenv("AGENTFLY_KEEP_CHECKPOINT")
	if base == "" {
		base = filepath.Join(t.TempDir(), "converted")
	}
	for _, name := range []string{"llama", "qwen2", "qwen3"} {
		source, dir := filepath.Join("..", "modelfile", "testdata", "gguf", name+".gguf"), base+"-"+name
		require.NoError(t, policy.Convert(source, dir, modelfile.F32))
		p, q := policytest.Load(t, source), policytest.Load(t, dir)
		require.Equal(t, policytest.Parameters(t, p), policytest.Parameters(t, q))
		ids := []int32{0, 3, 12, 5, 13, 1, 9, 9, 14, 2}
		require.Equal(t, logprobsOf(t, p, ids), logprobsOf(t, q, ids))
		require.NoError(t, modelfile.WriteJSON(dir+".probe.json", map[string]any{"score": []any{map[string]any{"ids": ids, "logprobs": logprobsOf(t, q, ids)}}}))
	}
}
