package tools

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// differs says what our parsers make of completions that vLLM reads otherwise, and why.
var differs = map[string]struct {
	calls []string // name and arguments by turns
	why   string
}{}

// Our parsers find the calls that vLLM's find. testdata/vllm_parsers.json is written by scripts/goldens/tool_parsers.sh.
func TestParsersAgainstVLLM(t *testing.T) {
	data, err := os.ReadFile("testdata/vllm_parsers.json")
	require.NoError(t, err)
	var golden struct {
		Tools []Spec
		Cases []struct {
			Format, Text string
			Content      *string
			Calls        []struct {
				Name      string
				Arguments json.RawMessage
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden.Cases, 48)
	seen := 0
	for _, c := range golden.Cases {
		f, err := NewFormat(c.Format, golden.Tools, FormatOptions{})
		require.NoError(t, err)
		var want []string
		for _, call := range c.Calls {
			want = append(want, call.Name, string(call.Arguments))
		}
		if d, ok := differs[c.Text]; ok {
			require.NotEmpty(t, d.why)
			want = d.calls
			seen++
		}
		got := parse(t, f, c.Text)
		require.Len(t, got.Calls, len(want)/2, "%s: %s\n%v", c.Format, c.Text, got)
		for i, call := range got.Calls {
			require.Equal(t, want[2*i], call.Name, c.Text)
			require.JSONEq(t, want[2*i+1], string(call.Arguments), c.Text)
		}
		require.Equal(t, len(got.Calls) == 0 && len(got.Errors) == 0 && c.Text != "", got.HasAnswer, c.Text)
	}
	require.Len(t, differs, seen, "every difference is one of a case")
}
