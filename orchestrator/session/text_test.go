package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/tools"
)

// The job's template renders conversations with tools too, whatever the model has for them.
func TestTheJobsTemplateReplacesTheModelsForTools(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "own.jinja"), []byte("own"), 0o600))
	j, err := job.Parse(filepath.Join(folder, "job.yaml"), []byte("version: 1\nname: x\nmodel: {path: m, chat_template: own.jinja}\nrewards: [final_answer]\ndata: {train: t.jsonl}\n"), job.Options{})
	require.NoError(t, err)
	p := &policy.Policy{Text: &policy.Text{ChatTemplate: "model's", ToolUse: "model's for tools"}}
	require.NoError(t, overrideTemplate(j, p))
	require.Equal(t, &policy.Text{ChatTemplate: "own"}, p.Text)
}

// A model whose template for tools cannot be read is refused for jobs that render tools, by the key that names it.
func TestATemplateForToolsThatCannotBeRead(t *testing.T) {
	model, err := policy.LoadText("../../examples/tiny/model")
	require.NoError(t, err)
	model.ToolUse = "{% include 'x' %}"
	specs := []tools.Spec{{Name: "f", Parameters: []byte(`{"type":"object"}`)}}
	for _, c := range []struct {
		format string
		tools  []tools.Spec
		want   string
	}{
		{"hermes", nil, ""},
		{"hermes", specs, "model.path: chat template: tool_use: template: line 1: {% include %}: there is no loader of other templates"},
		{"react", specs, ""}, // its own words stand in the system prompt
	} {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\n"), job.Options{})
		require.NoError(t, err)
		agent, err := agents.NewRegistry().New(t.Context(), nil, agents.Config{Format: c.format, Instructions: true}, c.tools)
		require.NoError(t, err)
		made, err := newText(j, &policy.Policy{Text: model}, "", agent, func(string) {})
		require.NoError(t, err)
		_, err = made.prompt(nil, func(string) {})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.ErrorAs(t, err, new(*job.Error))
	}
}
