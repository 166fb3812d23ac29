package rollout_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// hermesRollout is a rollout in the format hermes, which takes several calls in a turn.
func hermesRollout(t testing.TB, respond func(r engines.Request) (engines.Completion, error), all ...tools.Tool) *rollout.Sampler {
	r := rollouttest.New(t, respond)
	r.Tools = tools.NewRegistry(tools.Options{})
	require.NoError(t, r.Tools.Register(all...))
	var err error
	r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{ObservationRole: "user"})
	require.NoError(t, err)
	r.Sampling.Stop, r.MaxTotal = r.Format.Stops(), 20_000
	r.Sampling.MaxTokens = 4000
	return r
}

// written is a call as a model writes it.
func written(name, arguments string) string {
	return fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", name, arguments)
}

type text struct {
	X string `json:"x"`
}

// Calls of a turn run at once: each waits for all. Their results keep their order.
func TestCallsOfATurnRunSideBySide(t *testing.T) {
	const n = 12
	var came atomic.Int64
	all := make(chan struct{})
	meet := tools.NewFunc("meet", "Waits for the others.", func(ctx context.Context, a text) (string, error) {
		if came.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
			return "met " + a.X, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	r := hermesRollout(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(q), "met") {
			return rollouttest.Say("done")
		}
		var calls []string
		for i := range n {
			calls = append(calls, written("meet", fmt.Sprintf(`{"x": "%d"}`, i)))
		}
		return rollouttest.Say(strings.Join(calls, "\n"))
	}, meet)
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "go", "x")})
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopAnswer, tr.StopReason)
	require.Len(t, tr.Turns[0].Results, n)
	for i, result := range tr.Turns[0].Results {
		require.Equal(t, fmt.Sprintf("met %d", i), result.Observation)
	}
}

// A terminal call that succeeds ends the trajectory with its observation; the other calls of its turn run and are recorded.
func TestATerminalCallEndsTheTrajectory(t *testing.T) {
	var noted atomic.Int64
	note := tools.NewFunc("note", "Notes.", func(context.Context, text) (string, error) { noted.Add(1); return "noted", nil })
	turn := 0
	r := hermesRollout(t, func(engines.Request) (engines.Completion, error) {
		if turn++; turn == 1 { // the call fails: it ends nothing
			return rollouttest.Say(written("answer", `{"anser": "5"}`))
		}
		return rollouttest.Say(written("note", `{"x": "1"}`) + "\n" + written("answer", `{"answer": "5"}`) + "\n" + written("answer", `{"answer": "6"}`) + "\n" + written("note", `{"x": "2"}`))
	}, note, tools.NewAnswer())
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "2 and 3?", "5")})
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopAnswer, tr.StopReason)
	require.Len(t, tr.Turns, 2)
	require.Equal(t, trajectory.CauseBadArguments, tr.Turns[0].Results[0].Cause)
	require.Len(t, tr.Turns[1].Results, 4)
	require.EqualValues(t, 2, noted.Load())
	answer, at := tr.FinalAnswer()
	require.Equal(t, "5", answer)
	require.Equal(t, 1, at)
	require.Equal(t, 1.0, tr.Reward)
	require.Equal(t, tr.Turns[1].CompletionEnd, tr.Turns[1].ObservationEnd, "nobody reads it")

	// What was recorded ends in the same way, sampled anew or not.
	for _, again := range []bool{false, true} {
		turn = 0
		recovered := *tr
		other := *r
		other.Replay = again
		other.Recovered = func(string) (*trajectory.Trajectory, bool) { return &recovered, false }
		got := other.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "2 and 3?", "5")})
		require.Empty(t, got.Err)
		require.Equal(t, trajectory.StopAnswer, got.StopReason)
		require.Equal(t, 1.0, got.Reward)
		require.EqualValues(t, 2, noted.Load(), "no tool ran again")
	}
}

func TestLimitsOfCalls(t *testing.T) {
	echo := tools.NewFunc("echo", "Echoes.", func(_ context.Context, a text) (string, error) { return a.X, nil })
	three := strings.Repeat(written("echo", `{"x": "1"}`)+"\n", 3)
	for name, c := range map[string]struct {
		calls, atOnce int
		stop          trajectory.StopReason
		ran           []int // calls of each turn
	}{
		"no limit":               {0, 0, trajectory.StopMaxTurns, []int{3, 3, 3}},
		"the last one is within": {9, 0, trajectory.StopMaxTurns, []int{3, 3, 3}},
		"within a turn":          {5, 0, trajectory.StopMaxCalls, []int{3, 2}},
		"at a turn's beginning":  {3, 0, trajectory.StopMaxCalls, []int{3, 0}},
		"at once":                {0, 2, trajectory.StopMaxTurns, []int{2, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := hermesRollout(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say(three) }, echo)
			r.MaxCalls, r.MaxAtOnce = c.calls, c.atOnce
			tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "go", "x")})
			require.Empty(t, tr.Err)
			require.Equal(t, c.stop, tr.StopReason)
			var ran []int
			for _, turn := range tr.Turns {
				require.Len(t, turn.Results, 3, "every call has a result")
				n := 0
				for _, result := range turn.Results {
					if !result.Failed {
						n++
						continue
					}
					require.Equal(t, trajectory.CauseLimit, result.Cause)
				}
				ran = append(ran, n)
			}
			require.Equal(t, c.ran, ran)
		})
	}
}
