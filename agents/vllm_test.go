package agents

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

// Our parsers find the calls that vLLM's find. testdata/vllm_parsers.json is written by scripts/goldens/tool_parsers.sh.
func TestParsersAgainstVLLM(t *testing.T) {
	data, err := os.ReadFile("testdata/vllm_parsers.json")
	require.NoError(t, err)
	var golden struct {
		Tools []tools.Spec
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
	require.Len(t, golden.Cases, 72)
	for _, c := range golden.Cases {
		f, err := NewFormat(c.Format, golden.Tools, FormatOptions{})
		require.NoError(t, err)
		var want []string
		for _, call := range c.Calls {
			want = append(want, call.Name, string(call.Arguments))
		}
		got := parse(t, f, c.Text)
		require.Len(t, got.Calls, len(want)/2, "%s: %s\n%v", c.Format, c.Text, got)
		for i, call := range got.Calls {
			require.Equal(t, want[2*i], call.Name, c.Text)
			require.JSONEq(t, want[2*i+1], string(call.Arguments), c.Text)
		}
		if len(want) > 0 && c.Format != "llama3_json" { // where vLLM drops what stands around its calls
			splitter := NewSplitter(f, false)
			content, _ := joined(append(splitter.Push(c.Text), splitter.End()...))
			vllm := ""
			if c.Content != nil {
				vllm = strings.TrimSpace(*c.Content) // white space before a call is content to vLLM
			}
			require.Equal(t, vllm, content, c.Text)
		}
		require.Equal(t, len(got.Calls) == 0 && len(got.Errors) == 0 && c.Text != "", got.HasAnswer, c.Text)
	}
}
