package gateway_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
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
				require.Equal(t, gateway.Outcome{Calls: 2, Refused: 1}, second.session.Finish())
			}
		})
	}
}
