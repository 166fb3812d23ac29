package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

func roles(t *trajectory.Trajectory) (out []trajectory.Role) {
	for _, turn := range t.Turns {
		out = append(out, turn.Role)
	}
	return out
}

// A title that is asked for on the side is auxiliary, and answers nothing; where nobody offers tools, nothing is.
func TestAuxiliaryCalls(t *testing.T) {
	b := newBench(t, byRound("A title", callText, "It is 391.", "A summary"))
	b.chat([]map[string]any{{"role": "system", "content": "You write titles."}, user("17*23?")})
	messages := []map[string]any{user("17*23?")}
	m := b.chat(messages, "tools", calculator)
	b.chat(append(messages, m, tool("x", "391")), "tools", calculator)
	b.chat([]map[string]any{user("sum it up")})
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"auxiliary", "", "", "auxiliary"}, roles(b.told))
	answer, _ := b.told.FinalAnswer()
	require.Equal(t, "It is 391.", answer)
	require.Equal(t, trajectory.RoleAuxiliary, b.told.Samples[0].Role)
	require.Equal(t, 1, b.rewrote, "the log has the roles")

	b = newBench(t, byRound("one", "two"))
	b.chat([]map[string]any{user("a")})
	b.chat([]map[string]any{user("b")})
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"", ""}, roles(b.told))
	require.Zero(t, b.rewrote)
}

// The last call of an agent that leaves its tools out at its cap goes on after the others: it is the agent's.
func TestALastCallWithoutToolsIsTheAgents(t *testing.T) {
	b := newBench(t, byRound(callText, "It is 391."))
	messages := []map[string]any{user("17*23?")}
	m := b.chat(messages, "tools", calculator)
	b.chat(append(messages, m, tool("x", "391")))
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"", ""}, roles(b.told))
	require.Equal(t, 0, b.told.Turns[1].Incoming.After)
	answer, _ := b.told.FinalAnswer()
	require.Equal(t, "It is 391.", answer)
}

// A reply that has no call behind it, where another one to the same prompt has, was discarded: its tokens are not trained, those before it are.
func TestADiscardedReply(t *testing.T) {
	b := newBench(t, byRound("one", "two", "three", "four"))
	messages := []map[string]any{user("x")}
	messages = append(messages, b.chat(messages), user("go on"))
	b.chat(messages) // two: read, and thrown away
	again := b.chat(messages)
	require.Equal(t, "three", again["content"])
	b.chat(append(messages, again, user("and on")))
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"", "discarded", "", ""}, roles(b.told))
	b.check()
	trained := b.told.Trained(func(trajectory.Role) bool { return false })
	require.NotSame(t, b.told, trained)
	require.Equal(t, b.told.ResponseTokens()-len("two")-1, trained.ResponseTokens())
	for _, s := range trained.Samples {
		require.NoError(t, s.Check())
	}
	require.Same(t, b.told.Samples[1], trained.Samples[1], "what is all trained is shared")
}

// A job's rule that names a call keeps it: a reply that was thrown away, or never read, has the rule's role.
func TestARuleKeepsDiscardedReplies(t *testing.T) {
	b := newBench(t, byRound("one", "two", "three"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Roles = []gateway.RoleRule{{Role: "solver", Tool: "calculator"}}
	})
	messages := []map[string]any{user("x")}
	b.chat(messages, "tools", calculator) // thrown away
	b.chat(append(messages, b.chat(messages, "tools", calculator), user("go on")), "tools", calculator)
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"solver", "solver", "solver"}, roles(b.told))
}

// Rules of the job name roles; the first that fits counts. A frozen role is not trained.
func TestRoleRules(t *testing.T) {
	b := newBench(t, byRound("a plan", "a review", "by header", "other"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Roles = []gateway.RoleRule{
			{Role: "planner", System: regexp.MustCompile("^You plan")}, {Role: "reviewer", Tool: "calculator"}, {Role: "sub", Header: "x-parent-session-id: 7"},
		}
	})
	b.chat([]map[string]any{{"role": "system", "content": "You plan."}, user("x")}, "tools", calculator)
	b.chat([]map[string]any{user("y")}, "tools", calculator)
	status, _ := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"z"}]}`, "X-Parent-Session-Id", "7")
	require.Equal(t, http.StatusOK, status)
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"planner", "reviewer", "sub"}, roles(b.told))
	trained := b.told.Trained(func(r trajectory.Role) bool { return r == "reviewer" })
	require.Zero(t, trained.Samples[1].ResponseTokens())
	require.Equal(t, len("a plan")+1, trained.Samples[0].ResponseTokens())
}

// A rule that names no call is known by its place: its pattern has a mistake, or a rule before it takes its calls. Before a call came no rule is.
func TestRulesThatNameNoCall(t *testing.T) {
	b := newBench(t, byRound("a plan", "a review"), func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Roles = []gateway.RoleRule{
			{Role: "planner", System: regexp.MustCompile("^You plan")},
			{Role: "spelled", System: regexp.MustCompile("^You reviw")},
			{Role: "shadowed", System: regexp.MustCompile("plan")},
			{Role: "reviewer"},
		}
	})
	require.Nil(t, b.gate.SilentRules())
	b.chat([]map[string]any{{"role": "system", "content": "You plan."}, user("x")})
	require.Equal(t, []int{1, 2, 3}, b.gate.SilentRules())
	b.chat([]map[string]any{{"role": "system", "content": "You review."}, user("x")})
	require.Equal(t, []int{1, 2}, b.gate.SilentRules())

	again := newBench(t, byRound("new"), func(o *gateway.Options, so *gateway.SessionOptions) {
		o.Roles, so.Recovered = []gateway.RoleRule{{Role: "planner", System: regexp.MustCompile("^You plan")}, {Role: "other"}}, b.told
	})
	again.chat([]map[string]any{{"role": "system", "content": "You plan."}, user("x")})
	require.Empty(t, again.sampled)
	require.Equal(t, []int{1}, again.gate.SilentRules(), "a call that gets the recorded reply counts")
}

// Rewards that are posted are the turn's of a call, or the trajectory's; several add up.
func TestPostedRewards(t *testing.T) {
	b := newBench(t, byRound("one", "two"))
	ids := make([]string, 2)
	for i := range ids {
		_, text := b.post("/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"%d"}]}`, i))
		var reply struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(text), &reply))
		ids[i] = reply.ID
	}
	for _, body := range []string{fmt.Sprintf(`{"reward":0.5,"call":%q}`, ids[1]), fmt.Sprintf(`{"reward":0.25,"call":%q}`, ids[1]), `{"reward":1}`, `{"reward":-3}`} {
		status, text := b.post("/agentfly/reward", body)
		require.Equal(t, http.StatusOK, status, text)
	}
	for body, says := range map[string]string{`{"reward":1e308}`: "must be from", `{"call":"x"}`: "reward is missing", `{"reward":1,"call":"x"}`: "has no call", `{`: "not JSON"} {
		status, text := b.post("/agentfly/reward", body)
		require.NotEqual(t, http.StatusOK, status)
		require.Contains(t, text, says)
	}
	out := b.session.Finish()
	require.Equal(t, -2.0, *out.Posted)
	require.Nil(t, b.told.Turns[0].Reward)
	require.Equal(t, 0.75, *b.told.Turns[1].Reward)
	require.Equal(t, 1, b.rewrote)
}

// After a restart the same calls get the replies that were recorded, and nothing is sampled for them; where the agent goes another way, the log
// begins anew.
func TestRecall(t *testing.T) {
	first := newBench(t, byRound(callText, "It is 391."))
	messages := []map[string]any{user("17*23?")}
	m := first.chat(messages, "tools", calculator)
	id := m["tool_calls"].([]any)[0].(map[string]any)["id"]
	messages = append(messages, m, tool("c", "391"))
	first.chat(messages, "tools", calculator)

	second := newBench(t, byRound("new"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = first.told })
	m = second.chat(messages[:1], "tools", calculator)
	require.Equal(t, id, m["tool_calls"].([]any)[0].(map[string]any)["id"])
	require.Equal(t, "It is 391.", second.chat(messages, "tools", calculator)["content"])
	require.Empty(t, second.sampled)
	require.Empty(t, second.stored, "they are in the log")
	require.Equal(t, "new", second.chat(append(messages, user("more")), "tools", calculator)["content"])
	second.session.Finish()
	require.Equal(t, []int{3}, second.stored)
	require.Zero(t, second.rewrote)
	require.Equal(t, first.told.Samples[0].TokenIDs, second.told.Samples[0].TokenIDs[:first.told.Samples[0].Len()])

	third := newBench(t, byRound("otherwise"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = first.told })
	third.chat(messages[:1], "tools", calculator)
	third.chat([]map[string]any{user("something else")})
	third.session.Finish()
	require.Equal(t, 2, third.rewrote, "as it went another way, and once more as its last call, which is auxiliary, got its role")
	require.Equal(t, []int{2}, third.stored)
}

// A recalled reply has the ids that it had, though calls before it failed then and do not now: its agent's next request is the one that was recorded.
func TestARecalledReplyHasItsIds(t *testing.T) {
	broken, say := true, byRound(callText, "It is 391.")
	first := newBench(t, func(r engines.Request) (engines.Completion, error) {
		if broken {
			broken = false
			return engines.Completion{}, errors.New("it is gone")
		}
		return say(r)
	})
	body, err := json.Marshal(map[string]any{"model": "gpt-5", "messages": []map[string]any{user("17*23?")}, "tools": calculator})
	require.NoError(t, err)
	status, _ := first.post("/v1/chat/completions", string(body))
	require.Equal(t, http.StatusServiceUnavailable, status)
	run := func(b *bench) string {
		messages := []map[string]any{user("17*23?")}
		m := b.chat(messages, "tools", calculator)
		id := m["tool_calls"].([]any)[0].(map[string]any)["id"].(string)
		return b.chat(append(messages, m, tool(id, "391")), "tools", calculator)["content"].(string)
	}
	require.Equal(t, "It is 391.", run(first))
	second := newBench(t, byRound("new"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = first.told })
	require.Equal(t, "It is 391.", run(second))
	require.Empty(t, second.sampled)
	_, text := second.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"more"}]}`)
	require.Equal(t, "chatcmpl-train-0-0-0-3", choices(t, text).ID, "numbers go on")
}

// An agent that lives on while the process is killed goes on in its sample, and its last call gets the reply that it may not have read.
func TestAdopt(t *testing.T) {
	first := newBench(t, byRound(callText, "<think>\nlet me see\n</think>\n\nIt is 391.", "And more."))
	messages := []map[string]any{{"role": "system", "content": "You help."}, user("17*23?")}
	m := first.chat(messages, "tools", calculator)
	messages = append(messages, m, tool("c", "391"))
	m = first.chat(messages, "tools", calculator)
	delete(m, "reasoning_content")

	second := newBench(t, byRound("And more."), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	again := second.chat(messages, "tools", calculator)
	require.Equal(t, m["content"], again["content"])
	require.Empty(t, second.sampled)
	messages = append(messages, m, user("more"))
	first.chat(messages, "tools", calculator)
	require.Equal(t, "And more.", second.chat(messages, "tools", calculator)["content"])
	second.session.Finish()
	first.session.Finish()
	require.Equal(t, []int{3}, second.stored)
	require.Zero(t, second.rewrote)
	require.Len(t, second.told.Samples, 1)
	require.Equal(t, first.told.Samples[0].TokenIDs, second.told.Samples[0].TokenIDs, "as if nobody had been killed")
	require.Equal(t, first.told.Samples[0].ResponseMask, second.told.Samples[0].ResponseMask)

	third := newBench(t, byRound("no"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = second.told, true })
	third.session.Finish() // the agent had read its last reply before the kill
	require.Equal(t, []trajectory.Role{"", "", ""}, roles(third.told))
	answer, _ := third.told.FinalAnswer()
	require.Equal(t, "And more.", answer)
	require.Zero(t, third.rewrote)
}

// What the engine does not answer is its failure, unless a later call is answered; and such calls spend no budget.
func TestAnEngineThatBreaks(t *testing.T) {
	broken := true
	b := newBench(t, func(engines.Request) (engines.Completion, error) {
		if broken {
			return engines.Completion{}, errors.New("it is gone")
		}
		return rollouttest.Say("back")
	}, func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Budget.Calls = 1
		o.Sampling = &engines.Sampling{MaxTokens: 9, Temperature: 0, TopP: 1, StopIDs: []int32{rollouttest.End}}
	})
	body := `{"messages":[{"role":"user","content":"x"}]}`
	for range 3 {
		status, text := b.post("/v1/chat/completions", body)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, text, "it is gone")
	}
	broken = false
	status, _ := b.post("/v1/chat/completions", body)
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, b.session.Finish().Broke)

	b = newBench(t, func(engines.Request) (engines.Completion, error) {
		return engines.Completion{}, errors.New("it is gone")
	})
	b.post("/v1/chat/completions", body)
	require.ErrorContains(t, b.session.Finish().Broke, "it is gone")
}

// What an agent writes itself, ids of a prompt, may be wrong: the agent is told so, and nothing is broken. So is a prompt that the engine finds too long.
func TestAnEngineThatRefuses(t *testing.T) {
	var says error
	b := newBench(t, func(engines.Request) (engines.Completion, error) {
		if says != nil {
			return engines.Completion{}, says
		}
		return rollouttest.Say("a")
	})
	b.post("/v1/completions", `{"prompt":[1,2]}`)
	says = fmt.Errorf("%w: prompt token 0 is -1", engines.ErrRefused)
	status, text := b.post("/v1/completions", `{"prompt":[-1]}`)
	require.Equal(t, http.StatusBadRequest, status, text)
	require.Contains(t, text, "prompt token 0 is -1")
	says = engines.ErrTooLong
	status, text = b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusBadRequest, status, text)
	require.Contains(t, text, "context_length_exceeded")
	require.NoError(t, b.session.Finish().Broke)

	b = newBench(t, func(engines.Request) (engines.Completion, error) { return engines.Completion{}, engines.ErrTooLong }, func(o *gateway.Options, _ *gateway.SessionOptions) {
		o.Engine, o.MaxTotal = untold{o.Engine}, 4321
	})
	_, text = b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	require.Contains(t, text, "maximum context length is 4321 tokens")
}

// untold is an engine that does not tell how long its contexts may be.
type untold struct{ engines.Engine }

func (e untold) Capabilities() engines.Capabilities {
	c := e.Engine.Capabilities()
	c.MaxModelLen = 0
	return c
}

// A session samples as it is told: an evaluation has another temperature than the training of the same run.
func TestSamplingOfASession(t *testing.T) {
	var asked engines.Sampling
	b := newBench(t, func(r engines.Request) (engines.Completion, error) {
		asked = r.Sampling
		return rollouttest.Say("x")
	}, func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Sampling = &engines.Sampling{MaxTokens: 9, Temperature: 0, TopP: 1, StopIDs: []int32{rollouttest.End}}
	})
	b.chat([]map[string]any{user("x")}, "temperature", 2)
	require.Zero(t, asked.Temperature)
	require.Equal(t, 9, asked.MaxTokens)
}
