package gateway_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
)

// Prometheus reads what became of the calls, without a key, and neither a key nor a session's name.
func TestFigures(t *testing.T) {
	said := 0
	b := newBench(t, func(engines.Request) (engines.Completion, error) {
		if said++; said == 2 {
			return engines.Completion{}, io.ErrUnexpectedEOF
		}
		return rollouttest.Say("words")
	}, func(_ *gateway.Options, o *gateway.SessionOptions) { o.Budget.Calls = 2 })
	body := `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	for range 2 {
		_, _ = b.post("/v1/chat/completions", body, "Idempotency-Key", "1")
	}
	status, _ := b.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"fails"}]}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	for _, text := range []string{"y", "z"} {
		_, _ = b.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`)
	}
	reply, err := http.Get(b.url + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	for _, line := range []string{
		"agentfly_gateway_sessions 1", `agentfly_gateway_calls_total{result="answered"} 2`, `agentfly_gateway_calls_total{result="repeated"} 1`,
		`agentfly_gateway_calls_total{result="failed"} 1`, `agentfly_gateway_calls_total{result="budget"} 1`, "# TYPE agentfly_gateway_calls_total counter",
	} {
		require.Contains(t, string(text), line+"\n")
	}
	sampled := 0
	for _, turn := range b.told.Samples {
		for _, on := range turn.ResponseMask {
			if on {
				sampled++
			}
		}
	}
	require.Regexp(t, `agentfly_gateway_sampled_tokens_total `+strconv.Itoa(sampled)+`\n`, string(text))
	require.NotContains(t, string(text), testKey)
	require.NotContains(t, string(text), b.told.ID)
}
