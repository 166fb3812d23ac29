package gateway_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// recovers has a session begin with what another one recorded, its agent anew.
func recovers(from *bench) func(*gateway.Options, *gateway.SessionOptions) {
	return func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered = from.told }
}

// adopts has a session begin with what another one recorded, of an agent that lived on.
func adopts(from *bench) func(*gateway.Options, *gateway.SessionOptions) {
	return func(_ *gateway.Options, o *gateway.SessionOptions) { o.Recovered, o.Adopt = from.told, true }
}

// After a kill, calls that were made side by side within the budget get their recorded replies, in whatever order they come; other calls are beyond it.
func TestTheBudgetHoldsForWhatIsRecorded(t *testing.T) {
	body := func(text string) string { return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, text) }
	for name, budget := range map[string]gateway.Budget{"tokens": {Tokens: 6}, "calls": {Calls: 2}} {
		t.Run(name, func(t *testing.T) {
			set := func(_ *gateway.Options, o *gateway.SessionOptions) { o.Budget = budget }
			var asked sync.WaitGroup
			asked.Add(2)
			first := newBench(t, func(r engines.Request) (engines.Completion, error) {
				asked.Done()
				asked.Wait()
				return rollouttest.Say("said " + r.Messages[0].Content[0].Text)
			}, set)
			var both sync.WaitGroup
			for _, text := range []string{"a", "b"} {
				both.Go(func() { first.post("/v1/chat/completions", body(text)) })
			}
			both.Wait()
			for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
				second := newBench(t, byRound("new"), set, recovers(first))
				for _, text := range order {
					_, said := second.post("/v1/chat/completions", body(text))
					require.Contains(t, said, "said "+text)
				}
				_, said := second.post("/v1/chat/completions", body("c"))
				require.Contains(t, said, "The budget of this session is spent")
				require.Empty(t, second.sampled)
				require.Equal(t, gateway.Outcome{Calls: 2, Refused: 1, Cut: name == "tokens"}, second.session.Finish(), "the last reply ended where its tokens did")
			}
		})
	}
}

// lateRenderer holds back the first prompt that is rendered.
type lateRenderer struct {
	gateway.Renderer
	n       atomic.Int32
	entered chan struct{}
	let     chan struct{}
}

func (r *lateRenderer) Prompt(messages []trajectory.Message, tools []json.RawMessage, add bool) ([]int32, string, error) {
	if r.n.Add(1) == 1 {
		close(r.entered)
		<-r.let
	}
	return r.Renderer.Prompt(messages, tools, add)
}

// After a kill, each of several equal calls gets the reply that was recorded under its id, whichever of them is heard first: what the agent asks next is in
// the record too, since the ids of a reply's calls follow from its own.
func TestEqualCallsKeepTheirReplies(t *testing.T) {
	say := func(r engines.Request) (engines.Completion, error) {
		if len(r.Messages) > 1 {
			return rollouttest.Say("the end")
		}
		return rollouttest.Say(fmt.Sprintf(`<tool_call>{"name": "calculator", "arguments": {"a":%d}}</tool_call>`, r.Seed))
	}
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"tools":%s}`, calculator)
	type reply struct {
		ID      string
		Choices []struct{ Message map[string]any }
	}
	ask := func(b *bench) (r reply) {
		_, text := b.post("/v1/chat/completions", body)
		require.NoError(t, json.Unmarshal([]byte(text), &r), text)
		return r
	}
	goOn := func(b *bench, r reply) {
		m := r.Choices[0].Message
		call := m["tool_calls"].([]any)[0].(map[string]any)
		b.chat([]map[string]any{user("x"), m, tool(call["id"].(string), "391")}, "tools", calculator)
	}
	first := newBench(t, say)
	before := []reply{ask(first), ask(first)}
	for _, r := range before {
		goOn(first, r)
	}

	late := &lateRenderer{entered: make(chan struct{}), let: make(chan struct{})}
	second := newBench(t, byRound("new"), recovers(first), func(o *gateway.Options, _ *gateway.SessionOptions) {
		late.Renderer = o.Renderer
		o.Renderer = late
	})
	after := make([]reply, 2)
	var one sync.WaitGroup
	one.Go(func() { after[0] = ask(second) })
	<-late.entered // it came first
	after[1] = ask(second)
	close(late.let)
	one.Wait()
	require.Equal(t, before, after)
	for _, r := range after {
		goOn(second, r)
	}
	require.Empty(t, second.sampled)
	second.session.Finish()
	require.Len(t, second.told.Turns, 4)
}
