package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/trajectory"
)

// What becomes of a session names the request that was refused last, with its path, status and reason, because many clients throw the reason away. The
// session's key is not told, a reply makes good for what came before it, and what the gateway could not do is no refusal.
func TestTheLastRefusalIsTold(t *testing.T) {
	const call = `{"messages":[{"role":"user","content":"x"}]}`
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 200) + `"}],"stream":true}`
	for name, c := range map[string]struct {
		posts [][2]string // path and body
		says  string
	}{
		"misspelt":    {[][2]string{{"/v1/agentfly/reward", `{"rewards":1}`}}, `the gateway refused POST /v1/agentfly/reward (400): the reward has the unknown key "rewards" (did you mean "reward"?); allowed: reward, call, id`},
		"a text":      {[][2]string{{"/v1/agentfly/reward", `{"reward":"1.0"}`}}, `the gateway refused POST /v1/agentfly/reward (400): the reward is not such as {"reward": 0.5}: a JSON string does not fit reward`},
		"twice /v1":   {[][2]string{{"/v1/v1/chat/completions", call}}, "the gateway refused POST /v1/v1/chat/completions (404): there is no route POST /v1/v1/chat/completions; leave one /v1 out, with which OPENAI_BASE_URL ends"},
		"a key in it": {[][2]string{{"/s/" + testKey + "/v1/nowhere", call}}, "the gateway refused POST /v1/nowhere (404): there is no route POST /v1/nowhere"},
		"the last":    {[][2]string{{"/v1/nowhere", call}, {"/v1/chat/completions", `{"messages":1}`}}, "the gateway refused POST /v1/chat/completions (400): "},
		"counting":    {[][2]string{{"/v1/messages/count_tokens", `{"messages":1}`}}, "the gateway refused POST /v1/messages/count_tokens (400): "},
		"too long":    {[][2]string{{"/v1/chat/completions", long}}, "the gateway refused POST /v1/chat/completions (400): This model's maximum context length is 100 tokens."},
		"made good":   {[][2]string{{"/v1/nowhere", call}, {"/v1/chat/completions", call}}, ""},
		"answered":    {[][2]string{{"/v1/chat/completions", call}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, byRound("hello"), func(o *gateway.Options, _ *gateway.SessionOptions) { o.MaxTotal = 100 })
			for _, p := range c.posts {
				b.post(p[0], p[1])
			}
			out := b.session.Finish()
			if c.says == "" {
				require.NoError(t, out.Refusal)
				return
			}
			require.ErrorContains(t, out.Refusal, c.says)
		})
	}
	b := newBench(t, byRound("hello"), func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Recovered = &trajectory.Trajectory{Turns: []trajectory.Turn{{Incoming: &trajectory.Incoming{Holder: "one"}}}, Samples: []*trajectory.Sample{{}}}
	})
	status, _ := b.post("/v1/chat/completions", call) // of another holder
	require.Equal(t, http.StatusUnauthorized, status)
	require.NoError(t, b.session.Finish().Refusal, "who has no right to the session is not its agent")
}
