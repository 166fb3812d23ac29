package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
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
