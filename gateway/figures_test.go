package gateway_test

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
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

// What an earlier process or another trajectory sampled is not counted again: where an agent begins anew, where it lived on, before a fork and within a reply.
func TestFiguresCountWhatIsSampled(t *testing.T) {
	total := func(b *bench) string {
		reply, err := http.Get(b.url + "/metrics")
		require.NoError(t, err)
		text, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		return regexp.MustCompile(`(?m)^agentfly_gateway_sampled_tokens_total (.*)$`).FindStringSubmatch(string(text))[1]
	}
	drive := func(b *bench, calls int) {
		messages := []map[string]any{user("x")}
		for range calls {
			m := b.chat(messages)
			messages = append(messages, m, user("and?"))
		}
	}
	first := newBench(t, byRound("one", "two"), rooted(time.Now()))
	drive(first, 2)
	require.Equal(t, "8", total(first), "two words and their ends")
	within := func(tree *gateway.Tree) {
		turn := first.told.Turns[1]
		s, from := first.told.Samples[turn.Sample], turn.CompletionStart
		tree.Begun = &gateway.Begun{
			Incoming: turn.Incoming, Prompt: s.Prefix(from), By: []trajectory.Begun{{Shared: turn.Shared, End: 2}},
			IDs: s.TokenIDs[from : from+2], Logprobs: s.SamplingLogprobs[from : from+2], Versions: s.PolicyVersion[from : from+2],
		}
	}
	for name, c := range map[string]struct {
		set   func(*gateway.Options, *gateway.SessionOptions)
		calls int
		want  string
	}{
		"an agent that begins anew": {func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = first.told }, 3, "6"},
		"an agent that lived on":    {func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true }, 0, "0"},
		"before a fork":             {leaf(first, 1), 2, "6"},
		"within a reply":            {leaf(first, 1, within), 2, "6"},
	} {
		b := newBench(t, byRound("three"), c.set)
		drive(b, c.calls)
		require.Equal(t, c.want, total(b), name)
	}
}
