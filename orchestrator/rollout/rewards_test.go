package rollout_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// TestSlowRewardHoldsNobodyUp: the first trajectory's reward waits until all others have been sampled over two turns and scored. If
// anybody waited for it, nothing would end.
func TestSlowRewardHoldsNobodyUp(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(q), "question") {
			return rollouttest.Say("<calculator>1+1</calculator>")
		}
		return rollouttest.Say("<answer>2</answer>")
	})
	const size = 16
	others := make(chan struct{})
	var scored atomic.Int64
	slow := rewards.NewFunc("slow", func(ctx context.Context, in rewards.Input) (float64, error) {
		if in.Trajectory.Index == 0 {
			select {
			case <-others:
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		require.Len(t, in.Trajectory.Turns, 2)
		if scored.Add(1) == size-1 {
			close(others)
		}
		return 0, nil
	})
	sum, err := rewards.NewSum(time.Minute, rewards.Weighted{Reward: slow, Weight: 1})
	require.NoError(t, err)
	r.Reward = sum
	groups, err := r.Groups(t.Context(), "train", 0, []trajectory.Task{rollouttest.Task("a", "question", "2")}, size, func(*trajectory.Trajectory) error { return nil })
	require.NoError(t, err)
	for i, got := range groups[0].Trajectories {
		require.Equal(t, trajectory.StopAnswer, got.StopReason, got.Err)
		require.Equal(t, map[int]float64{0: 1}[i], got.Reward)
	}
}

// TestFailingRewardMarksItsTrajectory: an error, a panic and a deadline fail the trajectories that they struck, and nobody else.
func TestFailingRewardMarksItsTrajectory(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("<answer>2</answer>") })
	free := make(chan struct{})
	defer close(free)
	bad := rewards.NewFunc("bad", func(_ context.Context, in rewards.Input) (float64, error) {
		switch in.Trajectory.Index {
		case 0:
			return 0, errors.New("no judge")
		case 1:
			panic("boom")
		case 2:
			<-free // deaf to its deadline
		}
		return 1, nil
	})
	sum, err := rewards.NewSum(200*time.Millisecond, rewards.Weighted{Reward: bad, Weight: 1})
	require.NoError(t, err)
	r.Reward = sum
	groups, err := r.Groups(t.Context(), "train", 0, []trajectory.Task{rollouttest.Task("a", "question", "2")}, 5, func(*trajectory.Trajectory) error { return nil })
	require.NoError(t, err)
	for i, want := range []string{"rewards: bad: no judge", "rewards: bad: panic: boom", "rewards: bad: no score after 200ms: context deadline exceeded", "", ""} {
		got := groups[0].Trajectories[i]
		require.Equal(t, want, got.Err)
		if want == "" {
			require.Equal(t, trajectory.StopAnswer, got.StopReason)
			require.Equal(t, 1.0, got.Reward)
			continue
		}
		require.Equal(t, trajectory.StopError, got.StopReason)
		require.Equal(t, trajectory.OriginReward, got.ErrOrigin)
	}
}
