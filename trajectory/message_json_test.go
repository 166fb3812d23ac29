package trajectory

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// OpenAI's API writes "" for the arguments of a call of a function that takes none.
func TestACallWithoutArguments(t *testing.T) {
	for _, arguments := range []string{`""`, `" \n"`, `{}`, `"{}"`} {
		var m Message
		require.NoError(t, json.Unmarshal([]byte(`{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "now", "arguments": `+arguments+`}}]}`), &m), arguments)
		text, err := json.Marshal(m)
		require.NoError(t, err)
		require.JSONEq(t, `{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "now", "arguments": {}}}]}`, string(text), arguments)
	}
	var m Message
	require.EqualError(t, json.Unmarshal([]byte(`{"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": "{"}}]}`), &m),
		"trajectory: tool call 0: arguments are not JSON")
}
