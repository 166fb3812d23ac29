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

// What is written is read back, also arguments that are no object. Those that are no JSON at all stand in a message as a JSON string, so that they are
// written as OpenAI's text which holds one.
func TestAMessageReadsBackAsItWasWritten(t *testing.T) {
	for _, arguments := range []string{`"oops"`, `"{\"a\": 1}"`, `"17"`, `""`, `17`, `null`, `[1]`, `{"b":1,"a":2}`} {
		m := Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f", Arguments: json.RawMessage(arguments)}}, Content: []Part{{Type: "text"}}}
		text, err := json.Marshal(m)
		require.NoError(t, err)
		var again Message
		require.NoError(t, json.Unmarshal(text, &again), arguments)
		require.Equal(t, m, again, arguments)
	}
}
