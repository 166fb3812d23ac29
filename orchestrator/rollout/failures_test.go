package rollout_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// watched runs f under a watchdog of 50 ms and returns once it said what is wanted; then release ends f.
func watched(t *testing.T, want string, f func(ctx context.Context), release func()) {
	t.Helper()
	board := watchdog.NewBoard()
	said := make(chan string, 1000)
	var all sync.WaitGroup
	defer all.Wait()
	watch, stop := context.WithCancel(t.Context())
	defer stop()
	all.Go(func() { board.Watch(watch, 50*time.Millisecond, nil, func(line string) { said <- line }) })
	all.Go(func() { f(board.On(t.Context())) })
	defer release()
	late := time.After(10 * time.Second)
	for {
		select {
		case line := <-said:
			require.Regexp(t, `^nothing moved for [0-9.]+m?s; waiting for `, line)
			if strings.Contains(line, want) {
				return
			}
		case <-late:
			require.Fail(t, "the watchdog did not say it", want)
		}
	}
}

func TestTheWatchdogNamesATool(t *testing.T) {
	let := make(chan struct{})
	r := rollouttest.New(t, func(r engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(r), "<result>") {
			return rollouttest.Say("<answer>5</answer>")
		}
		return rollouttest.Say("<stuck>x</stuck>")
	}, rollouttest.Stuck(let))
	r.Tools = slow(t, r.Tools, time.Hour)
	watched(t, "waiting for tool stuck: 3, the oldest train-2-0-", func(ctx context.Context) {
		groups, err := r.Groups(ctx, "train", 2, []trajectory.Task{rollouttest.Task("a", "a?", "5")}, 3, nil)
		require.NoError(t, err)
		for _, tr := range groups[0].Trajectories {
			require.Empty(t, tr.Err)
		}
	}, func() { close(let) })
}

// slow gives the calls of a registry another deadline.
func slow(t *testing.T, r *tools.Registry, timeout time.Duration) *tools.Registry {
	out := tools.NewRegistry(tools.Options{})
	for _, name := range r.Names() {
		tool, err := r.Lookup(name)
		require.NoError(t, err)
		require.NoError(t, out.RegisterAs(tool, tools.Ref{Limits: tools.Limits{Timeout: timeout}}))
	}
	return out
}

func TestTheWatchdogNamesAReward(t *testing.T) {
	let := make(chan struct{})
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("<answer>5</answer>") })
	r.Reward = judged(t, time.Hour, func(context.Context, rewards.Input) (float64, error) { <-let; return 1, nil })
	watched(t, "waiting for reward judge: 2, the oldest train-0-0-", func(ctx context.Context) {
		groups, err := r.Groups(ctx, "train", 0, []trajectory.Task{rollouttest.Task("a", "a?", "5")}, 2, nil)
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
	r := rollouttest.New(t, nil)
	engine, err := vllm.New(t.Context(), vllm.Options{URLs: []string{server.URL}})
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	r.Engine, r.Timeout, r.MaxTotal = engine, time.Hour, 4000
	run, cancel := context.WithCancel(t.Context())
	watched(t, "waiting for engine replica "+server.URL+": 2, the oldest train-7-0-", func(ctx context.Context) {
		stop := context.AfterFunc(run, func() { engine.Close() }) // what cancels a request here; its error comes below
		defer stop()
		groups, err := r.Groups(ctx, "train", 7, []trajectory.Task{rollouttest.Task("a", "always: hang", "5")}, 2, nil)
		require.NoError(t, err)
		require.Contains(t, groups[0].Trajectories[0].Err, "engine is closed")
	}, cancel)
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
		r := rollouttest.New(t, nil)
		r.Engine, r.Timeout, r.MaxTotal = engine, 3*time.Second, 4000
		groups, err := r.Groups(t.Context(), "train", 0, []trajectory.Task{rollouttest.Task("a", "always: hang", "5"), rollouttest.Task("b", "fine", "5")}, 2, nil)
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
		r := rollouttest.New(t, func(r engines.Request) (engines.Completion, error) {
			if strings.Contains(rollouttest.LastTurn(r), "<result>") {
				seen.Store(rollouttest.LastTurn(r))
				return rollouttest.Say("<answer>5</answer>")
			}
			return rollouttest.Say("<stuck>x</stuck>")
		}, rollouttest.Stuck(let))
		tr := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("a", "a?", "5")})
		require.Empty(t, tr.Err, "the model is told, and goes on")
		require.Contains(t, seen.Load(), "Error: stuck took longer than 50ms; ask it for less work")
		require.Equal(t, 1.0, tr.Reward)
		require.Equal(t, trajectory.CauseBroken, tr.Turns[0].Results[0].Cause)
		require.Equal(t, map[trajectory.Origin]int{"tool": 1}, rollout.ErrorsOf(tr))
	})
	t.Run("reward", func(t *testing.T) {
		r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("<answer>5</answer>") })
		r.Reward = judged(t, 50*time.Millisecond, func(context.Context, rewards.Input) (float64, error) { <-let; return 1, nil })
		tr := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("a", "a?", "5")})
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
