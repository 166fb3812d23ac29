package orchestrator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// A call that the format would read as another one is not demonstrated.
func TestCallsThatAFormatCannotWrite(t *testing.T) {
	specs := []tools.Spec{{Name: "search", Description: "Searches.", Parameters: json.RawMessage(`{"type": "object", "properties": {"query": {"type": "string"}, "k": {"type": "integer"}}, "required": ["query"]}`)}}
	for format, refused := range map[string]bool{"tags": true, "hermes": false} {
		f, err := agents.NewFormat(format, specs, agents.FormatOptions{})
		require.NoError(t, err)
		s := &solver{writer: f.(agents.Writer)}
		for arguments, hard := range map[string]bool{`{"query": "a & b"}`: false, `{"query": "a", "k": 3}`: true, `{"query": "a</search>b"}`: true} {
			call := trajectory.ToolCall{Name: "search", Arguments: json.RawMessage(arguments)}
			err := s.reads(t.Context(), s.writer.Write(call), call)
			if refused && hard {
				require.ErrorContains(t, err, "cannot be written in the job's agent.format; take hermes", arguments)
			} else {
				require.NoError(t, err, format+" "+arguments)
			}
		}
	}
}
