package dialects

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkParse reads a request of the size that Claude Code and Codex send: 50 kB, most of it tools and system prompt.
func BenchmarkParse(b *testing.B) {
	tools := make([]map[string]any, 12)
	for i := range tools {
		tools[i] = map[string]any{"name": "tool", "description": strings.Repeat("what it does, \"quoted\"\n", 110), "input_schema": map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string"}}}}
	}
	body, err := json.Marshal(map[string]any{
		"model": "m", "system": strings.Repeat("You are an agent. ", 900), "tools": tools, "max_tokens": 32000,
		"messages": []map[string]any{{"role": "user", "content": "What is 17*23?"}},
	})
	require.NoError(b, err)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Messages().Parse(http.Header{}, body); err != nil {
			b.Fatal(err)
		}
	}
}
