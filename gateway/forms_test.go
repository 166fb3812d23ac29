package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// tokens are Letters as forms need them.
type tokens struct{ rollouttest.Letters }

func (tokens) Bytes(id int32) []byte {
	if id < rollouttest.Start {
		return []byte{byte(id)}
	}
	return nil
}

func (t tokens) Token(id int32) (string, bool) {
	return t.Decode([]int32{id}, false), id >= rollouttest.Start
}

func (tokens) IsSpecial(id int32) bool { return id >= rollouttest.Start }

// holding is an engine that holds completions to forms: of the tokens that may come it takes the first, and it ends where it may. What is free is the
// script's.
type holding struct{ engines.Engine }

func (e holding) Capabilities() engines.Capabilities {
	c := e.Engine.Capabilities()
	c.Constraints = true
	return c
}

func (e holding) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	if r.Constraint == nil {
		return e.Engine.Generate(ctx, r)
	}
	c := engines.Completion{FinishReason: trajectory.FinishStop}
	say := func(id int32) {
		c.TokenIDs, c.Logprobs, c.Versions = append(c.TokenIDs, id), append(c.Logprobs, -0.5), append(c.Versions, 7)
	}
	for m := r.Constraint.Match(); ; {
		allowed, end, err := m.Allowed()
		if err != nil {
			return c, err
		}
		if len(c.TokenIDs) == r.Sampling.MaxTokens {
			c.FinishReason = trajectory.FinishLength
			return c, nil
		}
		if end {
			say(rollouttest.End)
			return c, nil
		}
		id := int32(0)
		for allowed[id/64]>>(id%64)&1 == 0 {
			id++
		}
		say(id)
		if err := m.Take(id); err != nil {
			return c, err
		}
	}
}

// Where forms are held, a reply has the form that was asked for, in every dialect; the turn says so, and its tokens are the form's.
func TestFormsAreHeld(t *testing.T) {
	var warned []string
	b := newBench(t, byRound("free text"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Engine, o.Forms = holding{o.Engine}, forms.New(tokens{}, 258, []int32{rollouttest.End})
		o.Warn = func(text string) { warned = append(warned, text) }
	})
	tools := `,"tools":` + string(calculator)
	two := `,"tools":[{"type":"function","function":{"name":"aaa"}},` + string(calculator)[1:]
	const schema = `{"type":"object","properties":{"a":{"enum":[17]}},"required":["a"],"additionalProperties":false}`
	const call = `<tool_call>{"name":"calculator","arguments":{"a":-0}}</tool_call>`
	for i, c := range []struct {
		path, body string
		held       []string
		says       string // the completion, without blanks
	}{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"0"}]` + tools + `}`, nil, "freetext"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"1"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + schema + `}}}`, []string{"response_format"}, `{"a":17}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"2"}],"tool_choice":"required"` + tools + `}`, []string{"tool_choice"}, call},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"3"}],"tool_choice":{"type":"function","function":{"name":"calculator"}}` + two + `}`, []string{"tool_choice"}, call},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"4"}],"structured_outputs":{"regex":"a|b"}}`, []string{"structured_outputs"}, "a"},
		{"/v1/responses", `{"input":"5","text":{"format":{"type":"json_schema","name":"n","schema":` + schema + `}}}`, []string{"response_format"}, `{"a":17}`},
		{"/v1/messages", `{"max_tokens":90,"messages":[{"role":"user","content":"6"}],"tools":[{"name":"x","input_schema":{"type":"object","additionalProperties":false}}],"tool_choice":{"type":"any"}}`, []string{"tool_choice"}, `<tool_call>{"name":"x","arguments":{}}</tool_call>`},
		{"/v1/completions", `{"prompt":"7","structured_outputs":{"choice":["b"]}}`, []string{"structured_outputs"}, "b"},
	} {
		status, text := b.post(c.path, c.body)
		require.Equal(t, http.StatusOK, status, text)
		require.Len(t, b.told.Turns, i+1)
		turn := b.told.Turns[i]
		require.Equal(t, c.held, turn.Incoming.Held, c.body)
		require.Empty(t, turn.Incoming.Unapplied)
		require.Empty(t, warned)
		require.Equal(t, c.says, strings.Join(strings.Fields(turn.Completion), ""), c.body)
		if strings.Contains(c.says, "tool_call") {
			require.True(t, strings.Contains(text, `"tool_calls":[`) || strings.Contains(text, `"tool_use"`), text)
		}
	}
	for body, says := range map[string]string{
		`{"messages":[{"role":"user","content":"8"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"not":{}}}}}`: `response_format: schema: \"not\" is not supported`,
		`{"messages":[{"role":"user","content":"9"}],"tool_choice":"required","response_format":{"type":"json_object"}` + tools + `}`:          "give one",
		`{"messages":[{"role":"user","content":"10"}],"structured_outputs":{"regex":7}}`:                                                       "structured_outputs: ",
		`{"messages":[{"role":"user","content":"11"}],"structured_outputs":{"grammar":"x"}}`:                                                   "is not supported by this server",
	} {
		status, text := b.post("/v1/chat/completions", body)
		require.Equal(t, http.StatusBadRequest, status, text)
		require.Contains(t, text, says)
	}
	require.Len(t, b.told.Turns, 8)
	status, text := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"12"}],"response_format":{"type":"json_object"},"chat_template_kwargs":{"enable_thinking":false}}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, []string{"response_format"}, b.told.Turns[8].Incoming.Held)
	require.Equal(t, []string{"chat_template_kwargs"}, b.told.Turns[8].Incoming.Unapplied, "variables of the template are no form")
	require.Len(t, warned, 1)
}

// An engine that does not constrain decoding holds nothing.
func TestFormsNeedAnEngine(t *testing.T) {
	newBench(t, byRound("a"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		with := *o
		with.Forms = forms.New(tokens{}, 258, nil)
		_, err := gateway.New(with)
		require.EqualError(t, err, "gateway: the engine does not constrain decoding; it cannot hold replies to a form")
	})
}

// Where forms are not held, the reply itself says so, in a header.
func TestAReplyNamesTheFormsThatWereNotApplied(t *testing.T) {
	b := newBench(t, byRound("free text"))
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":"0"}]}`: "",
		`{"messages":[{"role":"user","content":"1"}],"tool_choice":"required","response_format":{"type":"json_object"},"tools":` + string(calculator) + `}`: "response_format, tool_choice",
		`{"messages":[{"role":"user","content":"2"}],"stream":true,"response_format":{"type":"json_object"}}`:                                               "response_format",
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+testKey)
		out := httptest.NewRecorder()
		b.gate.ServeHTTP(out, r)
		require.Equal(t, http.StatusOK, out.Code)
		require.Equal(t, want, out.Header().Get("X-Agentfly-Unapplied"))
	}
}

// What a call may sample at most is kept beside what was asked for.
func TestTheLimitOfACallIsKept(t *testing.T) {
	b := newBench(t, byRound("a"), func(o *gateway.Options, s *gateway.SessionOptions) { s.Budget.Tokens = 1000 })
	for i, c := range []struct{ ask, want int }{{7, 7}, {100_000, 500}} {
		b.chat([]map[string]any{user(fmt.Sprint(i))}, "max_tokens", c.ask)
		require.Equal(t, c.want, b.told.Turns[i].Incoming.MaxTokens)
		require.JSONEq(t, fmt.Sprintf(`{"max_tokens":%d,"model":"gpt-5"}`, c.ask), string(b.told.Turns[i].Incoming.Asked))
	}
}

// A call has one reply: who asks for several is told, in each dialect that has the parameter.
func TestSeveralChoicesAreRefused(t *testing.T) {
	b := newBench(t, byRound("a"))
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"n":2,"messages":[{"role":"user","content":"x"}]}`,
		"/v1/completions":      `{"n":2,"prompt":"x"}`,
	} {
		status, text := b.post(path, body)
		require.Equal(t, http.StatusBadRequest, status, text)
		var e struct {
			Error struct{ Message, Type, Param string }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &e))
		require.Equal(t, "invalid_request_error", e.Error.Type)
		require.Equal(t, "n", e.Error.Param)
		require.Equal(t, "n is 2, and a call of a trajectory has one reply; leave n out and ask 2 times", e.Error.Message)
	}
	b.chat([]map[string]any{user("x")}, "n", 1)
	require.Len(t, b.told.Turns, 1)
}
