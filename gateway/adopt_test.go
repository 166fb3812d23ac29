package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// A reply that is given again after a restart is the reply that was given: the request's choice of tools, one call a reply, and the prompt's text count as
// they did.
func TestAnAdoptedReplyIsTheSame(t *testing.T) {
	twice := strings.Repeat(`<tool_call>{"name":"calculator","arguments":{"a":1}}</tool_call>`, 2)
	tools := `"messages":[{"role":"user","content":"x"}],"tools":` + string(calculator)
	for name, c := range map[string]struct{ path, body, says string }{
		"no tool may be called":            {"/v1/chat/completions", `{` + tools + `,"tool_choice":"none"}`, twice},
		"one call a reply":                 {"/v1/chat/completions", `{` + tools + `,"parallel_tool_calls":false}`, twice},
		"two calls":                        {"/v1/chat/completions", `{` + tools + `}`, twice},
		"a thought that the prompt opened": {"/v1/completions", `{"prompt":"think! <think>"}`, "hm</think>so"},
		"a text":                           {"/v1/completions", `{"prompt":"go"}`, "on"},
	} {
		t.Run(name, func(t *testing.T) {
			first := newBench(t, byRound(c.says))
			status, before := first.post(c.path, c.body)
			require.Equal(t, http.StatusOK, status, before)
			second := newBench(t, byRound("no"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
			_, after := second.post(c.path, c.body)
			require.Empty(t, second.sampled)
			require.Equal(t, choices(t, before), choices(t, after))
			for _, told := range []*trajectory.Trajectory{first.told, second.told} {
				require.Equal(t, strings.HasSuffix(c.body, `<think>"}`), told.Turns[0].InThought)
			}
		})
	}
}

// choices is what a reply says, without when.
func choices(t *testing.T, body string) (out struct {
	ID      string
	Choices json.RawMessage
},
) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(body), &out), body)
	return out
}

// An adopted conversation in which the template opens thoughts goes on as it would have: the text that it was rendered to is known.
func TestAnAdoptedConversationGoesOn(t *testing.T) {
	say := func() rollouttest.Script { return byRound(callText, "It is 391.", "And more.") }
	first, whole := newBench(t, say()), newBench(t, say())
	ask := func(b *bench, messages []map[string]any) []map[string]any {
		m := b.chat(messages, "tools", calculator, "parallel_tool_calls", false)
		return append(messages, m, tool("c", "391"))
	}
	messages := ask(first, []map[string]any{user("17*23?")})
	require.Equal(t, messages, ask(whole, []map[string]any{user("17*23?")}))
	second := newBench(t, byRound("It is 391.", "And more."), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	for range 2 {
		want := ask(whole, messages)
		messages = ask(second, messages)
		require.Equal(t, want, messages)
	}
	require.Len(t, second.told.Samples, 1)
	require.Equal(t, whole.told.Samples[0].TokenIDs, second.told.Samples[0].TokenIDs)
}

// The ids of replies stay as they were after a restart, also where the calls did not end in the order in which they came.
func TestIdsStay(t *testing.T) {
	let := map[string]chan struct{}{"slow": make(chan struct{}), "fast": make(chan struct{})}
	asked := make(chan struct{}, 2)
	first := newBench(t, func(r engines.Request) (engines.Completion, error) {
		text := r.Messages[0].Content[0].Text
		asked <- struct{}{}
		<-let[text]
		return rollouttest.Say("said " + text)
	})
	body := func(text string) string { return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, text) }
	replies := map[string]string{}
	var mu sync.Mutex
	var both sync.WaitGroup
	ask := func(text string) {
		_, reply := first.post("/v1/chat/completions", body(text))
		mu.Lock()
		defer mu.Unlock()
		replies[text] = choices(t, reply).ID
	}
	both.Go(func() { ask("slow") })
	<-asked // it came first
	both.Go(func() { ask("fast") })
	<-asked
	close(let["fast"])
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return replies["fast"] != "" }, 5*time.Second, time.Millisecond)
	close(let["slow"])
	both.Wait()
	require.Equal(t, "said fast", strings.TrimSuffix(first.told.Turns[0].Completion, "<|im_end|>"))

	second := newBench(t, byRound("new"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	for text, id := range replies {
		status, _ := second.post("/agentfly/reward", fmt.Sprintf(`{"reward":1,"call":%q}`, id))
		require.Equal(t, http.StatusOK, status)
		_, reply := second.post("/v1/chat/completions", body(text))
		require.Equal(t, id, choices(t, reply).ID, text)
	}
	_, reply := second.post("/v1/chat/completions", body("more"))
	require.Equal(t, "chatcmpl-train-0-0-0-2", choices(t, reply).ID, "numbers go on")
	second.session.Finish()
	require.Len(t, second.told.Turns, 3)

	for i := range first.told.Turns { // as a program before this one wrote it
		first.told.Turns[i].Incoming.Call = 0
	}
	third := newBench(t, byRound("new"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	_, reply = third.post("/v1/chat/completions", body("fast"))
	require.Equal(t, "chatcmpl-train-0-0-0-0", choices(t, reply).ID, "the order of the turns")
}

// Branches of an agent that ask the same at once are calls of their own, each of which can be paid, asked for again by its mark, and counts as read.
func TestBranchesWithEqualRequests(t *testing.T) {
	let := make(chan struct{})
	asked := make(chan struct{}, 3)
	say := byRound("one", "two", "three")
	b := newBench(t, func(r engines.Request) (engines.Completion, error) {
		asked <- struct{}{}
		<-let
		return say(r)
	})
	body := `{"messages":[{"role":"user","content":"x"}]}`
	replies := make([]string, 3)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() {
			_, text := b.post("/v1/chat/completions", body, "Idempotency-Key", fmt.Sprint("branch-", i))
			replies[i] = text
		})
		<-asked
	}
	close(let)
	all.Wait()
	for i, text := range replies {
		status, said := b.post("/agentfly/reward", fmt.Sprintf(`{"reward":%d,"call":%q}`, i+1, choices(t, text).ID))
		require.Equal(t, http.StatusOK, status, said)
		_, again := b.post("/v1/chat/completions", body, "Idempotency-Key", fmt.Sprint("branch-", i))
		require.Equal(t, choices(t, text), choices(t, again), "branch %d", i)
	}
	require.Len(t, b.told.Turns, 3, "nothing was sampled again")
	require.Equal(t, gateway.Outcome{Calls: 3}, b.session.Finish())
	paid := 0.0
	for _, turn := range b.told.Turns {
		require.NotEqual(t, trajectory.RoleDiscarded, turn.Role, "it was read")
		paid += *turn.Reward
	}
	require.Equal(t, 6.0, paid)
}

// While a turn is being stored, by a disk that takes its time, the session's other calls are heard and kept alive.
func TestASlowStoreBlocksNobody(t *testing.T) {
	storing, let := make(chan struct{}, 9), make(chan struct{})
	end := sync.OnceFunc(func() { close(let) })
	defer end()
	b := newBench(t, byRound("a", "b"), func(_ *gateway.Options, o *gateway.SessionOptions) {
		o.Record = func(context.Context, *trajectory.Trajectory) error {
			storing <- struct{}{}
			<-let
			return nil
		}
	})
	var first sync.WaitGroup
	first.Go(func() { b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`) })
	<-storing
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/chat/completions", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"y"}]}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+testKey)
	reply, err := http.DefaultClient.Do(r)
	require.NoError(t, err, "a call that comes meanwhile is not heard")
	defer reply.Body.Close()
	line, err := bufio.NewReader(reply.Body).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, ":"), line)
	end()
	first.Wait()
	for len(storing) == 0 { // the other turn is stored behind it
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, b.session.Finish().Err)
	require.Len(t, b.told.Turns, 2)
	b.check()
}

// Of an adopted reply that the agent went on after it is known that it was read: who asks the same again wants another one.
func TestAnAdoptedReplyThatWasReadIsNotGivenAgain(t *testing.T) {
	first := newBench(t, byRound("one", "two"))
	asked := []map[string]any{user("x")}
	more := append(asked, first.chat(asked), user("go on"))
	first.chat(more)

	second := newBench(t, byRound("new"), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	require.Equal(t, "two", second.chat(more)["content"], "it is not known whether the last one was read")
	require.Empty(t, second.sampled)
	require.Equal(t, "new", second.chat(asked)["content"])
	second.session.Finish()
	require.Len(t, second.told.Turns, 3)
}

// A trajectory is adopted whole, also where a client sends back a call whose arguments are no JSON object, as clients write those that they could not parse.
func TestCallsThatAreNoJSONAreAdopted(t *testing.T) {
	for name, arguments := range map[string]string{"no JSON": `{"a": 17, "b": `, "a text": `"17"`, "nothing": "", "an object": `{"b":1, "a":"<&"}`} {
		t.Run(name, func(t *testing.T) {
			say := []string{"one", "two", "three"}
			first, whole := newBench(t, byRound(say...)), newBench(t, byRound(say...))
			messages := []map[string]any{user("x"), {"role": "assistant", "content": nil, "tool_calls": []map[string]any{
				{"id": "c", "type": "function", "function": map[string]any{"name": "calculator", "arguments": arguments}},
			}}, tool("c", "no such call")}
			for range 2 {
				m := first.chat(messages, "tools", calculator)
				require.Equal(t, m, whole.chat(messages, "tools", calculator))
				messages = append(messages, m, user("go on"))
			}
			second := newBench(t, byRound(say[2:]...), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
			require.Len(t, second.told.Turns, 2)
			require.Equal(t, whole.chat(messages, "tools", calculator), second.chat(messages, "tools", calculator))
			require.Len(t, second.told.Samples, 1)
			require.Equal(t, whole.told.Samples[0].TokenIDs, second.told.Samples[0].TokenIDs)
		})
	}
}

// A conversation goes on in its sample after a restart also where the client puts the stop string back, which replies end before.
func TestAnAdoptedConversationWithStopStrings(t *testing.T) {
	say := []string{"one END", "two END", "three END"}
	first := newBench(t, byRound(say[:2]...))
	var messages []map[string]any
	ask := func(b *bench) {
		messages = append(messages, user("go on"))
		m := b.chat(messages, "stop", []string{"END"})
		m["content"] = m["content"].(string) + "END"
		messages = append(messages, m)
	}
	ask(first)
	ask(first)
	require.Len(t, first.told.Samples, 1)
	second := newBench(t, byRound(say[2:]...), func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = first.told, true })
	ask(second)
	second.session.Finish()
	require.Len(t, second.told.Turns, 3)
	require.Len(t, second.told.Samples, 1)
	require.Equal(t, 1, second.told.Turns[2].Incoming.After, "the sampled ids go on, not what is made of the text")
}

// The seconds of a budget that begin with the first call go on after each restart; those in which the process was down do not count.
func TestTheBudgetOfTimeGoesOn(t *testing.T) {
	now := time.Unix(1000, 0)
	set := func(o *gateway.Options, s *gateway.SessionOptions) {
		o.Now, s.Budget.Time = func() time.Time { return now }, time.Minute
	}
	messages := []map[string]any{user("x")}
	ask := func(b *bench) {
		messages = append(messages, b.chat(messages), user("go on"))
	}
	first := newBench(t, byRound("one", "two"), set)
	ask(first)
	now = now.Add(40 * time.Second)
	ask(first)

	now = now.Add(time.Hour)
	second := newBench(t, byRound("three", "four"), set, adopts(first))
	ask(second)
	now = now.Add(15 * time.Second)
	ask(second)

	now = now.Add(time.Hour)
	third := newBench(t, byRound("five", "six"), set, adopts(second))
	ask(third)
	now = now.Add(4 * time.Second)
	ask(third)
	require.Equal(t, "six", messages[11]["content"])
	now = now.Add(2 * time.Second)
	ask(third)
	require.Equal(t, "The budget of this session is spent: its time. Stop here.", messages[13]["content"])
}
