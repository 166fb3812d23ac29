package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// hermesRollout is a rollout in the format hermes, which takes several calls in a turn.
func hermesRollout(t testing.TB, respond func(r engines.Request) (engines.Completion, error), all ...tools.Tool) *rollout.Sampler {
	r := newRollout(t, respond)
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
		if strings.Contains(lastTurn(q), "met") {
			return say("done")
		}
		var calls []string
		for i := range n {
			calls = append(calls, written("meet", fmt.Sprintf(`{"x": "%d"}`, i)))
		}
		return say(strings.Join(calls, "\n"))
	}, meet)
	tr := r.Sample(t.Context(), rollout.Place{Task: task("a", "go", "x")})
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
			return say(written("answer", `{"anser": "5"}`))
		}
		return say(written("note", `{"x": "1"}`) + "\n" + written("answer", `{"answer": "5"}`) + "\n" + written("answer", `{"answer": "6"}`) + "\n" + written("note", `{"x": "2"}`))
	}, note, tools.NewAnswer())
	tr := r.Sample(t.Context(), rollout.Place{Task: task("a", "2 and 3?", "5")})
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
		past := *tr
		other := *r
		other.Replay = again
		other.Recovered = func(string) (*trajectory.Trajectory, bool) { return &past, false }
		got := other.Sample(t.Context(), rollout.Place{Task: task("a", "2 and 3?", "5")})
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
			r := hermesRollout(t, func(engines.Request) (engines.Completion, error) { return say(three) }, echo)
			r.MaxCalls, r.MaxAtOnce = c.calls, c.atOnce
			tr := r.Sample(t.Context(), rollout.Place{Task: task("a", "go", "x")})
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

func TestThePlaceOfAPanicIsNoted(t *testing.T) {
	var got string
	r := tools.NewRegistry(tools.Options{Report: func(_ string, err error, trace []byte) { got = panicked(err, trace) }})
	require.NoError(t, r.Register(tools.NewFunc("boom", "", func(context.Context, struct{}) (string, error) {
		var m map[string]int
		//lint:ignore SA5000 the tool is to panic
		m["x"] = 1
		return "", nil
	})))
	r.Invoke(t.Context(), "x", trajectory.ToolCall{Name: "boom"})
	require.Regexp(t, `^tools: boom: panic: assignment to entry in nil map, at .*calls_test.go:\d+; further ones are counted in tools/broken$`, got)
	require.Equal(t, "x", panicked(errors.New("x"), debug.Stack()), "a stack without a panic")
}

// A tool that ignores its context is named at the end of the run.
func TestWhatIsStillRunningIsNamed(t *testing.T) {
	let := make(chan struct{})
	r := newRollout(t, nil, stuck(let))
	require.Empty(t, leftOver(nil))
	require.Empty(t, leftOver(r.Tools))
	for range 2 {
		r.Tools.Invoke(t.Context(), "x", trajectory.ToolCall{Name: "stuck", Arguments: json.RawMessage(`{"text": "x"}`)})
	}
	require.Equal(t, "calls are still running that ignored their deadline (stuck: 2); these tools must honour ctx", leftOver(r.Tools))
	close(let)
	require.Eventually(t, func() bool { return leftOver(r.Tools) == "" }, 10*time.Second, time.Millisecond)
}

// The job's settings reach the registry, and its mistakes are told with their place.
func TestToolsOfAJob(t *testing.T) {
	catalog := tools.NewCatalog()
	shout := tools.NewFunc("shout", "Shouts.", func(_ context.Context, a text) (string, error) { return strings.Repeat(a.X, 100), nil },
		func(s *tools.Spec) { s.Deterministic = true })
	require.NoError(t, catalog.Register(shout, tools.NewFunc("whisper", "", func(context.Context, text) (string, error) { return "", nil })))
	require.NoError(t, catalog.Add("many", "", func(_ context.Context, _ *resources.Resources, params map[string]any) ([]tools.Tool, error) {
		var p struct {
			Names []string `json:"names"`
		}
		if err := resources.Decode(params, &p); err != nil {
			return nil, err
		}
		var out []tools.Tool
		for _, name := range p.Names {
			out = append(out, tools.NewFunc(name, "", func(context.Context, text) (string, error) { return name, nil }))
		}
		return out, nil
	}))
	open := func(entries string) (*tools.Registry, error) {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nrollout: {tool_timeout: 3, tool_tokens: 20}\nagent: {tools: ["+entries+"]}"), job.Options{})
		require.NoError(t, err)
		shared := newResources(j, nil, false)
		defer shared.Close()
		r, _, err := makeTools(t.Context(), j, Registries{Tools: catalog, Agents: agents.NewRegistry()}, shared, tools.Options{Tokenizer: letters{}})
		return r, err
	}
	r, err := open("shout, {name: many, names: [a, b], timeout: 1, concurrency: 2}")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "shout"}, r.Names())
	require.Equal(t, tools.Limits{Timeout: time.Second, MaxTokens: 20, Concurrency: 2}, r.Specs()[0].Limits)
	require.Equal(t, tools.Limits{Timeout: 3 * time.Second, MaxTokens: 20}, r.Specs()[2].Limits)
	got := r.Invoke(t.Context(), "x", trajectory.ToolCall{Name: "shout", Arguments: json.RawMessage(`{"x": "ha"}`)}).Observation
	require.LessOrEqual(t, len(letters{}.Encode(got)), 20)

	for entries, want := range map[string]string{
		"{name: whisper, cache: true}":        "job.yaml:6:40: agent.tools.0.cache: the tool does not say that it is deterministic, so nothing can be kept; leave it out",
		"{name: whisper, retries: 1}":         "job.yaml:6:42: agent.tools.0.retries: the tool does not say that it is idempotent, so no call can be tried again; leave it out",
		"{name: many, nmes: [a]}":             `job.yaml:6:17: agent.tools.0: many: the parameters cannot be read: unknown field "nmes"`,
		"shout, {name: many, names: [shout]}": `job.yaml:6:24: agent.tools.1: register "shout": the name is already registered; give one of the two another name`,
		"{name: shoot}":                       `job.yaml:6:17: agent.tools.0: there is no tool "shoot" (did you mean "shout"?); the tools are many, shout, whisper`,
	} {
		_, err := open(entries)
		require.EqualError(t, err, want)
	}
	_, err = open("{name: shout, cache: true}")
	require.NoError(t, err)
}
