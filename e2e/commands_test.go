package agentfly_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A flag that is wrong is refused before the model is loaded.
func TestServeFlags(t *testing.T) {
	t.Setenv("AGENTFLY_API_KEY", "")
	for _, c := range []struct {
		message string
		args    []string
	}{
		{"takes one argument", nil},
		{"--host 0.0.0.0 is reachable from elsewhere: give --api-key", []string{"m", "--host", "0.0.0.0"}},
		{"--host example.com is reachable from elsewhere", []string{"--host", "example.com", "m"}},
		{"--port is 70000", []string{"m", "--port", "70000"}},
		{"--dtype is \"float16\"; allowed: [auto float float32 bfloat16]", []string{"m", "--dtype", "float16"}},
		{"--logprobs-mode is \"raw_logits\"", []string{"m", "--logprobs-mode", "raw_logits"}},
		{"--tool-call-parser is \"harmony\"; allowed: [hermes llama3_json llama4_json mistral qwen3_coder qwen3_json qwen3_xml]", []string{"m", "--tool-call-parser", "harmony"}},
		{"--max-model-len is 1", []string{"m", "--max-model-len", "1"}},
		{"--max-num-seqs is 0", []string{"m", "--max-num-seqs", "0"}},
		{"--max-queue is 0", []string{"m", "--max-queue", "0"}},
		{"--max-logprobs is 0", []string{"m", "--max-logprobs", "0"}},
		{"--shutdown-timeout is -1", []string{"m", "--shutdown-timeout", "-1"}},
	} {
		status, _, errs := command("", append([]string{"serve"}, c.args...)...)
		require.Equal(t, 2, status, c.message)
		require.Contains(t, errs, c.message)
	}
	status, _, errs := command("", "serve", "/no/such/model", "--host", "0.0.0.0", "--api-key", "k")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "/no/such/model")
}
