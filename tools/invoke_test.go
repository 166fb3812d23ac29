package tools

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

func TestCauses(t *testing.T) {
	r := NewRegistry(Options{})
	require.NoError(t, r.Register(
		NewFunc("add", "", func(_ context.Context, a struct {
			X int `json:"x"`
			Y int `json:"y,omitempty"`
		},
		) (string, error) {
			return "", nil
		}),
		textTool("raises", func(context.Context) (string, error) { return "", errors.New("no") }),
		textTool("breaks", func(context.Context) (string, error) { return "", &BrokenError{Text: "the server is gone"} }),
		textTool("panics", func(context.Context) (string, error) { panic("x") }),
		textTool("exits", func(context.Context) (string, error) { runtime.Goexit(); return "", nil }),
	))
	for _, c := range []struct {
		name, arguments string
		cause           trajectory.Cause
		want            string
	}{
		{"add", `{"x": 1}`, "", ""},
		{"ad", `{"x": 1}`, trajectory.CauseUnknownTool, `there is no tool "ad" (did you mean "add"?); the tools are add, breaks, exits, panics, raises`},
		{"add", `{"x": `, trajectory.CauseBadArguments, `add: the arguments are not JSON (it ends too early); write {"x": integer, "y": integer (optional)}`},
		{"add", `{"x": "1"}`, trajectory.CauseBadArguments, `add: the argument "x" must be an integer, got the string "1"; the arguments are {"x": integer, "y": integer (optional)}`},
		{"add", `{"y": 1}`, trajectory.CauseBadArguments, `add: the argument "x" is missing; the arguments are {"x": integer, "y": integer (optional)}`},
		{"add", `{"z": 1}`, trajectory.CauseBadArguments, `add: there is no argument "z"; the arguments are {"x": integer, "y": integer (optional)}`},
		{"raises", `{}`, trajectory.CauseRaised, "no"},
		{"breaks", `{}`, trajectory.CauseBroken, "the server is gone"},
		{"panics", `{}`, trajectory.CauseBroken, "panics failed inside; try other arguments"},
		{"exits", `{}`, trajectory.CauseBroken, "exits ended without a result"},
	} {
		got := invoke(t, r, c.name, c.arguments)
		if c.want != "" {
			c.want = "Error: " + c.want
		}
		require.Equal(t, c.want, got.Observation)
		require.Equal(t, c.cause, got.Cause, c.want)
		require.Equal(t, c.cause != "", got.Failed)
		require.Equal(t, c.cause == trajectory.CauseBroken, got.Cause == trajectory.CauseBroken)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, trajectory.CauseInterrupted, r.Invoke(done, "", trajectory.ToolCall{Name: "raises"}).Cause)
	require.Nil(t, r.Abandoned())
}

// unreliable breaks so many times, each after some time.
func unreliable(spec Spec, times int, takes time.Duration, fail error) (Tool, *atomic.Int64) {
	calls := new(atomic.Int64)
	spec.Name, spec.Parameters = "shaky", json.RawMessage(`{"type":"object"}`)
	return spied{spec, func(ctx context.Context, _ Call) (Observation, error) {
		n := calls.Add(1)
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return Observation{}, ctx.Err()
		}
		if int(n) <= times {
			return Observation{}, fail
		}
		return Observation{Text: "at last"}, nil
	}}, calls
}

func TestRetries(t *testing.T) {
	gone := &BrokenError{Text: "gone"}
	for name, c := range map[string]struct {
		spec     Spec
		fail     error
		times    int
		takes    time.Duration
		deadline time.Duration // of the trajectory
		want     string
		calls    int
		spent    time.Duration
	}{
		"tried again":                {Spec{Idempotent: true, Limits: Limits{Retries: 3}}, gone, 2, time.Second, 0, "at last", 3, 3300 * time.Millisecond},
		"no more retries":            {Spec{Idempotent: true, Limits: Limits{Retries: 3}}, gone, 9, 0, 0, "Error: gone", 4, 700 * time.Millisecond},
		"not idempotent":             {Spec{Limits: Limits{Retries: 3}}, gone, 9, 0, 0, "Error: gone", 1, 0},
		"an answer is no breakdown":  {Spec{Idempotent: true, Limits: Limits{Retries: 3}}, errors.New("no such city"), 9, 0, 0, "Error: no such city", 1, 0},
		"the call's time is up":      {Spec{Idempotent: true, Limits: Limits{Retries: 9, Timeout: 5 * time.Second}}, gone, 9, 2 * time.Second, 0, "Error: shaky took longer than 5s; ask it for less work", 3, 5 * time.Second},
		"it hangs":                   {Spec{Idempotent: true, Limits: Limits{Retries: 9, Timeout: 5 * time.Second}}, gone, 9, time.Hour, 0, "Error: shaky took longer than 5s; ask it for less work", 1, 5 * time.Second},
		"the trajectory has no time": {Spec{Idempotent: true, Limits: Limits{Retries: 9}}, gone, 9, time.Second, 1050 * time.Millisecond, "Error: gone", 1, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tool, calls := unreliable(c.spec, c.times, c.takes, c.fail)
			r := NewRegistry(Options{})
			require.NoError(t, r.Register(tool))
			ctx := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			got := r.Invoke(ctx, "x", trajectory.ToolCall{Name: "shaky"})
			require.Equal(t, c.want, got.Observation, name)
			require.EqualValues(t, c.calls, calls.Load(), name)
			require.Equal(t, c.calls-1, got.Retries, name)
			require.Equal(t, c.spent, got.Duration, name)
		})
	}
}

// Waiting for a turn is not the call's time, and the watchdog sees it.
func TestATurnIsWaitedForOutsideTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := watchdog.NewBoard()
		ctx := board.On(t.Context())
		tool := spied{Spec{Name: "slow", Parameters: json.RawMessage(`{"type":"object"}`), Limits: Limits{Concurrency: 1, Timeout: 3 * time.Second}}, func(context.Context, Call) (Observation, error) {
			time.Sleep(2 * time.Second)
			return Observation{Text: "ok"}, nil
		}}
		r := NewRegistry(Options{})
		require.NoError(t, r.Register(tool))
		results := make(chan trajectory.ToolResult, 5)
		for range 5 {
			go func() { results <- r.Invoke(ctx, "t", trajectory.ToolCall{Name: "slow"}) }()
		}
		time.Sleep(time.Second)
		lines := map[string]int{}
		for _, l := range board.Lines() {
			lines[l.Part] = l.Count
		}
		require.Equal(t, map[string]int{"tool slow": 1, "a turn of tool slow": 4}, lines)
		for i := range 5 {
			got := <-results
			require.Equal(t, "ok", got.Observation)
			require.Equal(t, time.Duration(i+1)*2*time.Second, got.Duration)
		}
		require.Empty(t, board.Lines())
	})
}

// A job's limits go before the tool's, field by field.
func TestLimitsOfTheJobGoFirst(t *testing.T) {
	r := NewRegistry(Options{Timeout: time.Second, MaxTokens: 7})
	tool := spied{Spec{Name: "x", Idempotent: true, Limits: Limits{Timeout: 2 * time.Second, Concurrency: 3, Retries: 1}}, nil}
	require.NoError(t, r.RegisterAs(tool, Ref{Limits: Limits{Concurrency: 5, Rate: 2}}))
	require.Equal(t, Limits{Timeout: 2 * time.Second, MaxTokens: 7, Concurrency: 5, Rate: 2, Retries: 1}, r.Specs()[0].Limits)
}

func TestWhatAToolReturnsBesideText(t *testing.T) {
	r := NewRegistry(Options{})
	give := func(name string, o Observation, terminal bool) {
		require.NoError(t, r.Register(spied{Spec{Name: name, Parameters: json.RawMessage(`{"type":"object"}`), Terminal: terminal}, func(_ context.Context, c Call) (Observation, error) {
			if string(c.Arguments) == `{"fail":true}` {
				return o, errors.New("no")
			}
			return o, nil
		}}))
	}
	give("info", Observation{Text: "x", Info: map[string]any{"hits": 3}}, false)
	give("bad_info", Observation{Text: "x", Info: map[string]any{"hits": math.NaN()}}, false)
	give("much_info", Observation{Text: "x", Info: map[string]any{"hits": strings.Repeat("x", maxInfo)}}, false)
	give("chart", Observation{Text: "x", Image: "data:image/png;base64,AAAA"}, false)
	give("submit", Observation{Text: "7"}, true)

	require.JSONEq(t, `{"hits": 3}`, string(invoke(t, r, "info", "{}").Info))
	require.Equal(t, "Error: bad_info returned info that cannot be recorded: json: unsupported value: NaN", invoke(t, r, "bad_info", "{}").Observation)
	require.Contains(t, invoke(t, r, "much_info", "{}").Observation, "at most 1048576 are kept")
	require.Equal(t, "Error: chart returned an image, and this model takes text only; ask it for text", invoke(t, r, "chart", "{}").Observation)
	require.True(t, invoke(t, r, "submit", "{}").Terminal)
	require.False(t, invoke(t, r, "submit", `{"fail":true}`).Terminal, "only a call that succeeded ends the trajectory")
	require.False(t, invoke(t, r, "info", "{}").Terminal)
}

func TestAnswer(t *testing.T) {
	r := NewRegistry(Options{MaxTokens: 10})
	require.NoError(t, r.Register(NewAnswer()))
	long := strings.Repeat("x", 1000)
	got := invoke(t, r, "answer", `{"answer": "`+long+`"}`)
	require.Equal(t, long, got.Observation, "what the model wrote is not cut")
	require.True(t, got.Terminal)
	require.Equal(t, `Error: answer: the argument "answer" is missing; the arguments are {"answer": string}`, invoke(t, r, "answer", "{}").Observation)
}
