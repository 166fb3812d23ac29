package main

import (
	"context"
	"fmt"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
)

var newRewards = []agentfly.Option{
	agentfly.WithReward(rewards.NewFunc("answered", func(_ context.Context, in rewards.Input) (float64, error) {
		if _, turn := in.Trajectory.FinalAnswer(); turn < 0 {
			return 0, nil
		}
		return 1, nil
	})),
	agentfly.WithRewardFactory("turns", "1 for a trajectory of so many turns, else 0", newTurns),
}

// newTurns makes the reward of a job that says {name: turns, count: 2}.
func newTurns(_ *rewards.Builder, params map[string]any) (rewards.Reward, error) {
	var p struct {
		Count int `json:"count"`
	}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Count < 1 {
		return nil, fmt.Errorf("count is %d; it must be at least 1", p.Count)
	}
	return rewards.NewFunc("turns", func(_ context.Context, in rewards.Input) (float64, error) {
		if len(in.Trajectory.Turns) != p.Count {
			return 0, nil
		}
		return 1, nil
	}), nil
}
