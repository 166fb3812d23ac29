package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	ordinary = "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	forTools = "<|im_start|>system\nYou may call <tools>{% for x in tools %}{{x|tojson}}{% endfor %}</tools><|im_end|>\n{% for m in messages %}<|im_start|>{{m.role}}\n" +
		"{% if m.role=='tool' %}<tool_response>\n{{m.content}}\n</tool_response>{% else %}{{m.content}}{% endif %}<|im_end|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

// named copies the tiny model with these templates.
func named(t *testing.T, templates map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../examples/tiny/model")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "chat_template.jinja")))
	path := filepath.Join(dir, "tokenizer_config.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	config := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &config))
	var list []map[string]string
	for name, template := range templates {
		list = append(list, map[string]string{"name": name, "template": template})
	}
	config["chat_template"] = list
	data, err = json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return dir
}

// The texts are those of transformers 5.24's apply_chat_template.
func TestToolUseRendersWhatHasTools(t *testing.T) {
	text, err := LoadText(named(t, map[string]string{"default": ordinary, "tool_use": forTools}))
	require.NoError(t, err)
	compiled, err := text.Template()
	require.NoError(t, err)
	r, err := masks.NewRenderer(text.Tokenizer, compiled, masks.Options{StopIDs: text.StopIDs})
	require.NoError(t, err)
	require.False(t, r.ToolsInSystemPrompt())
	ok, reason := r.AppendOnly()
	require.True(t, ok, reason)

	say := trajectory.Text
	messages := []trajectory.Message{say("user", "hi"), say("assistant", "call"), say("tool", "42")}
	tools := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"f"}}`)}
	const opened = "<|im_start|>system\nYou may call <tools>{\"type\": \"function\", \"function\": {\"name\": \"f\"}}</tools><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	const result = "<|im_end|>\n<|im_start|>tool\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
	for _, c := range []struct {
		tools []json.RawMessage
		want  string
	}{
		{tools, opened + "call" + result},
		{nil, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\ncall<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"},
		{[]json.RawMessage{}, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\ncall<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"},
	} {
		_, got, err := r.Prompt(messages, c.tools, true)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	ids, prompt, err := r.Prompt(messages[:1], tools, true)
	require.NoError(t, err)
	require.Equal(t, opened, prompt)
	_, whole, err := r.Continue(masks.Reply{History: messages[:1], Tools: tools, Completion: "call", Results: messages[2:], Prompt: prompt})
	require.NoError(t, err)
	require.Equal(t, opened+"call"+result, whole)
	samples, err := r.Samples(masks.Recorded{Messages: messages[:2], Tools: tools, Learned: []bool{false, true}})
	require.NoError(t, err)
	require.Equal(t, ids, samples[0].TokenIDs[:len(ids)])
	require.True(t, samples[0].ResponseMask[len(ids)])

	raw, err := compiled.RenderJSON([]byte(`[{"role": "user", "content": "hi"}]`), []byte(`[{"type":"function","function":{"name":"f"}}]`), jinja.Input{AddGenerationPrompt: true})
	require.NoError(t, err)
	require.Equal(t, opened, raw)
}

// A saved folder has the templates of the policy: one that a job replaced is not there to render what has tools.
func TestSavedFoldersHaveTheTemplateForTools(t *testing.T) {
	files, err := modelfile.Open(named(t, map[string]string{"default": ordinary, "tool_use": forTools, "rag": "{{ documents }}"}))
	require.NoError(t, err)
	defer files.Close()
	config, text, kept, err := loadFiles(files)
	require.NoError(t, err)
	saved := func() map[string]string {
		dir := t.TempDir()
		require.NoError(t, folder{config, text, kept}.saveText(dir))
		m, err := modelfile.Open(dir)
		require.NoError(t, err)
		defer m.Close()
		again, err := LoadText(dir)
		require.NoError(t, err)
		require.Equal(t, text.Fingerprint(), again.Fingerprint())
		templates, err := m.ChatTemplates()
		require.NoError(t, err)
		return templates
	}
	require.Equal(t, map[string]string{"default": ordinary, "tool_use": forTools, "rag": "{{ documents }}"}, saved())
	text.ChatTemplate, text.ToolUse = "{{ messages }}", ""
	require.Equal(t, map[string]string{"default": "{{ messages }}", "rag": "{{ documents }}"}, saved())
}

// A template for tools tells models apart, and a model without one has the fingerprint that it had.
func TestToolUseIsInTheFingerprint(t *testing.T) {
	fingerprint := func(templates map[string]string) string {
		text, err := LoadText(named(t, templates))
		require.NoError(t, err)
		return text.Fingerprint()
	}
	alone := fingerprint(map[string]string{"default": ordinary})
	require.Equal(t, alone, fingerprint(map[string]string{"default": ordinary, "rag": "{{ documents }}"}))
	require.NotEqual(t, alone, fingerprint(map[string]string{"default": ordinary, "tool_use": forTools}))
}

// A template for tools that cannot be read is told where it would be used, and nowhere else.
func TestAToolUseThatCannotBeReadRefusesToolsAlone(t *testing.T) {
	tools := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"f"}}`)}
	messages := []trajectory.Message{trajectory.Text("user", "hi")}
	for source, want := range map[string]string{
		"{% include 'x' %}":                  "masks: chat template: tool_use: template: line 1: {% include %}: there is no loader of other templates",
		"{{ raise_exception('not today') }}": "(the chat template tool_use)",
	} {
		text, err := LoadText(named(t, map[string]string{"default": ordinary, "tool_use": source}))
		require.NoError(t, err)
		compiled, err := text.Template()
		require.NoError(t, err)
		r, err := masks.NewRenderer(text.Tokenizer, compiled, masks.Options{StopIDs: text.StopIDs})
		require.NoError(t, err)
		_, got, err := r.Prompt(messages, nil, true)
		require.NoError(t, err)
		require.Equal(t, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", got)
		require.NotEmpty(t, r.StopIDs())
		ok, reason := r.AppendOnly()
		require.True(t, ok, reason)

		require.False(t, r.ToolsInSystemPrompt())
		require.ErrorContains(t, r.ToolsError(), want)
		_, _, err = r.Prompt(messages, tools, true)
		require.Equal(t, r.ToolsError(), err)
		_, _, err = r.Continue(masks.Reply{History: messages, Tools: tools, Completion: "a", Results: messages})
		require.Equal(t, r.ToolsError(), err)
		_, err = r.Samples(masks.Recorded{Messages: append(messages, trajectory.Text("assistant", "a")), Tools: tools, Learned: []bool{false, true}})
		require.Equal(t, r.ToolsError(), err)
	}
}
