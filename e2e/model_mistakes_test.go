package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is wrong with the files of a model, validate and train say in the same words and with the same status: before its first step a
// run finds no fault of the input that validate does not.
func TestBrokenModelsAreTheInputsFault(t *testing.T) {
	needTorch(t)
	for name, c := range map[string]struct{ file, text, says string }{
		"template: syntax":        {"chat_template.jinja", "{% if %}", `chat template: template: line 1: Expected an expression, got "block_end"`},
		"template: refuses":       {"chat_template.jinja", "{{ raise_exception('no') }}", "the chat template cannot render a user, an assistant and a user: template: the template refuses this conversation: no"},
		"template: says nothing":  {"chat_template.jinja", "hello", "the chat template does not write the assistant's content"},
		"config: no JSON":         {"config.json", "{", "config.json: not a JSON object: unexpected end of JSON input"},
		"config: architecture":    {"config.json", `{"architectures": ["Foo"]}`, `config.json: architectures is "Foo", which is not supported`},
		"tokenizer: no JSON":      {"tokenizer.json", "{", "not a tokenizer.json: unexpected end of JSON input"},
		"tokenizer: kind":         {"tokenizer.json", `{"model": {"type": "Foo"}}`, `model type "Foo" is not supported`},
		"tokenizer config":        {"tokenizer_config.json", "[", "tokenizer_config.json: unexpected end of JSON input"},
		"generation config":       {"generation_config.json", "{", "generation_config.json: not a JSON object"},
		"weights: no safetensors": {"model.safetensors", "garbage", "the file is damaged or not safetensors"},
		"weights: missing":        {"model.safetensors", "", "holds no weights"},
		"tokenizer: missing":      {"tokenizer.json", "", "has no tokenizer.json"},
		"config: missing":         {"config.json", "", "has no config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := planted(t, edits{"model": "model: {path: broken}"})
			model := filepath.Join(dir, "broken")
			require.NoError(t, os.CopyFS(model, os.DirFS("examples/tiny/model")))
			if c.text == "" {
				require.NoError(t, os.Remove(filepath.Join(model, c.file)))
			} else {
				require.NoError(t, os.WriteFile(filepath.Join(model, c.file), []byte(c.text), 0o600))
			}
			status, _, told := command("", "job", "validate", path)
			require.Equal(t, 2, status, told)
			require.True(t, strings.HasPrefix(told, "agentfly: "+path+":4:15: model.path: "), told)
			require.Contains(t, told, c.says)
			status, _, said := command("", "train", path, "--output", filepath.Join(dir, "run"))
			require.Equal(t, 2, status, said)
			require.Equal(t, told, said)
		})
	}
}
