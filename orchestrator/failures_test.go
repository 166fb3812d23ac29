package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// printed collects what a watchdog prints.
type printed struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

// watched runs f under a watchdog of 50 ms and returns once it said what is wanted; then release ends f.
func watched(t *testing.T, want string, f func(ctx context.Context), release func()) {
	t.Helper()
	var out printed
	ctx, stop := Watch(t.Context(), 0.05, &out, nil)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { f(ctx) })
	defer all.Wait()
	defer release()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), want) }, 10*time.Second, time.Millisecond, out.String())
	require.Regexp(t, `^agentfly: nothing moved for [0-9.]+m?s; waiting for `, out.String())
}

// stuck is a tool that hangs until it is let go, whatever its context says.
func stuck(let chan struct{}) tools.Tool {
	return tools.NewFunc("stuck", "Hangs.", func(context.Context, struct {
		Text string `json:"text"`
	},
	) (string, error) {
		<-let
		return "done", nil
	})
}

func TestTheWatchdogNamesATool(t *testing.T) {
	let := make(chan struct{})
	r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
		if strings.Contains(lastTurn(r), "<result>") {
			return say("<answer>5</answer>")
		}
		return say("<stuck>x</stuck>")
	}, stuck(let))
	r.Tools = slow(t, r.Tools, time.Hour)
	watched(t, "waiting for tool stuck: 3, the oldest train-2-0-", func(ctx context.Context) {
		groups, err := r.Groups(ctx, "train", 2, []trajectory.Task{task("a", "a?", "5")}, 3, nil)
		require.NoError(t, err)
		for _, tr := range groups[0].Trajectories {
			require.Empty(t, tr.Err)
		}
	}, func() { close(let) })
}

// slow gives a registry another deadline.
func slow(t *testing.T, r *tools.Registry, timeout time.Duration) *tools.Registry {
	out := tools.NewRegistry(tools.Options{Timeout: timeout})
	for _, name := range r.Names() {
		tool, err := r.Lookup(name)
		require.NoError(t, err)
		require.NoError(t, out.Register(tool))
	}
	return out
}

func TestTheWatchdogNamesAReward(t *testing.T) {
	let := make(chan struct{})
	r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("<answer>5</answer>") })
	r.Reward = judged(t, time.Hour, func(context.Context, rewards.Input) (float64, error) { <-let; return 1, nil })
	watched(t, "waiting for reward judge: 2, the oldest train-0-0-", func(ctx context.Context) {
		groups, err := r.Groups(ctx, "train", 0, []trajectory.Task{task("a", "a?", "5")}, 2, nil)
		require.NoError(t, err)
		require.Equal(t, 1.0, groups[0].Trajectories[0].Reward)
	}, func() { close(let) })
}

func judged(t *testing.T, timeout time.Duration, score func(context.Context, rewards.Input) (float64, error)) rewards.Reward {
	sum, err := rewards.NewSum(timeout, rewards.Weighted{Reward: rewards.NewFunc("judge", score), Weight: 1})
	require.NoError(t, err)
	return sum
}

func TestTheWatchdogNamesAReplica(t *testing.T) {
	server := faultyServer(t)
	r := newRollout(t, nil)
	engine, err := vllm.New(t.Context(), vllm.Options{URLs: []string{server.URL}})
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	r.Engine, r.Timeout, r.MaxTotal = engine, time.Hour, 4000
	run, cancel := context.WithCancel(t.Context())
	watched(t, "waiting for engine replica "+server.URL+": 2, the oldest train-7-0-", func(ctx context.Context) {
		stop := context.AfterFunc(run, func() { engine.Close() }) // what cancels a request here; its error comes below
		defer stop()
		groups, err := r.Groups(ctx, "train", 7, []trajectory.Task{task("a", "always: hang", "5")}, 2, nil)
		require.NoError(t, err)
		require.Contains(t, groups[0].Trajectories[0].Err, "engine is closed")
	}, cancel)
}

func TestASignalAsksForTheWaits(t *testing.T) {
	var out printed
	ask := make(chan os.Signal, 1)
	_, stop := Watch(t.Context(), 0, &out, ask)
	defer stop()
	ask <- syscall.SIGUSR1
	require.Eventually(t, func() bool { return out.String() == "agentfly: waiting for nothing outside the process\n" }, 10*time.Second, time.Millisecond)
}

// Whatever hangs, its trajectory ends at the deadline of that part and says who was late; the others go on. What hangs
// ignores its context: only the deadline helps.
func TestEveryPartHasADeadline(t *testing.T) {
	let := make(chan struct{})
	defer close(let)
	server := faultyServer(t)
	engine, err := vllm.New(t.Context(), vllm.Options{URLs: []string{server.URL}})
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()

	t.Run("engine", func(t *testing.T) {
		r := newRollout(t, nil)
		r.Engine, r.Timeout, r.MaxTotal = engine, 300*time.Millisecond, 4000
		groups, err := r.Groups(t.Context(), "train", 0, []trajectory.Task{task("a", "always: hang", "5"), task("b", "fine", "5")}, 2, nil)
		require.NoError(t, err)
		late, fine := groups[0].Trajectories[1], groups[1].Trajectories[1]
		require.Equal(t, trajectory.OriginEngine, late.ErrOrigin)
		require.Contains(t, late.Err, "train-0-0-1 turn 0: vllm: request train-0-0-1-0: "+server.URL+": context deadline exceeded")
		require.Empty(t, fine.Err)
		require.Equal(t, map[trajectory.Origin]int{"engine": 1}, rollout.ErrorsOf(late))
		require.Empty(t, rollout.ErrorsOf(fine))
	})
	t.Run("tool", func(t *testing.T) {
		var seen atomic.Value
		r := newRollout(t, func(r engines.Request) (engines.Completion, error) {
			if strings.Contains(lastTurn(r), "<result>") {
				seen.Store(lastTurn(r))
				return say("<answer>5</answer>")
			}
			return say("<stuck>x</stuck>")
		}, stuck(let)) // the registry's deadline is 50 ms
		tr := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: task("a", "a?", "5")})
		require.Empty(t, tr.Err, "the model is told, and goes on")
		require.Contains(t, seen.Load(), "Error: stuck took longer than 50ms; ask it for less work")
		require.Equal(t, 1.0, tr.Reward)
		require.Equal(t, trajectory.CauseBroken, tr.Turns[0].Results[0].Cause)
		require.Equal(t, map[trajectory.Origin]int{"tool": 1}, rollout.ErrorsOf(tr))
	})
	t.Run("reward", func(t *testing.T) {
		r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("<answer>5</answer>") })
		r.Reward = judged(t, 50*time.Millisecond, func(context.Context, rewards.Input) (float64, error) { <-let; return 1, nil })
		tr := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: task("a", "a?", "5")})
		require.Equal(t, trajectory.OriginReward, tr.ErrOrigin)
		require.Contains(t, tr.Err, "rewards: judge: no score after 50ms")
		require.Equal(t, map[trajectory.Origin]int{"reward": 1}, rollout.ErrorsOf(tr))
	})
}

// A call that the model got wrong is no error of the tool.
func TestAWrongCallIsNotBroken(t *testing.T) {
	registry := tools.NewRegistry(tools.Options{})
	require.NoError(t, registry.Register(tools.NewFunc("boom", "Panics.", func(context.Context, struct{}) (string, error) { panic("x") })))
	require.NoError(t, registry.Register(tools.NewFunc("fails", "Fails.", func(context.Context, struct{}) (string, error) { return "", errors.New("no such file") })))
	for name, want := range map[string]bool{"boom": true, "fails": false, "nobody": false} {
		r := registry.Invoke(t.Context(), "x", trajectory.ToolCall{Name: name})
		require.True(t, r.Failed, name)
		require.Equal(t, want, r.Cause == trajectory.CauseBroken, name)
	}
}

func TestTooManyBrokenCallsEndAStep(t *testing.T) {
	broken := trajectory.Turn{Results: []trajectory.ToolResult{{Failed: true, Cause: trajectory.CauseBroken, Observation: "Error: slow took longer than 1s"}, {Failed: true}, {}, {}}}
	groups := []trajectory.Group{{Trajectories: []*trajectory.Trajectory{
		{ID: "a", Err: "x", ErrOrigin: trajectory.OriginEngine},
		{ID: "b", Err: "x", ErrOrigin: trajectory.OriginEngine, Turns: []trajectory.Turn{broken}},
		{ID: "c", Err: "x", ErrOrigin: trajectory.OriginRender},
		{ID: "d", Turns: []trajectory.Turn{broken, broken}},
		{ID: "e"},
		{ID: "f", Err: "stopped", ErrOrigin: trajectory.OriginEngine, StopReason: trajectory.StopCancelled},
	}}}
	r := &rollouts{limits: &job.Rollout{MaxFailed: 1, MaxFailedTool: 0.25}}
	require.NoError(t, r.TooManyFailed(3, groups), "3 of 12 is not more than a quarter")
	r.limits.MaxFailedTool = 0.2
	require.EqualError(t, r.TooManyFailed(3, groups), "orchestrator: step 3: 3 of 12 tool calls broke, more than rollout.max_failed_tool (0.2); the first: b: Error: slow took longer than 1s")
	r.limits.MaxFailedTool = 1
	require.NoError(t, r.TooManyFailed(3, groups))
}
