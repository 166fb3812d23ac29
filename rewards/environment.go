package rewards

import (
	"context"

	"github.com/agentfly/agentfly/resources"
)

// environment is what the environment paid: its own score of the episode where it has one, else the sum of its rewards, without those that were
// paid to turns already.
type environment struct{}

func newEnvironment(_ *Builder, params map[string]any) (Reward, error) {
	return environment{}, resources.Decode(params, &struct{}{})
}

func (environment) Name() string { return "environment" }

func (environment) Score(ctx context.Context, in Input) (Score, error) {
	if in.Episode != nil {
		own, has, err := in.Episode.Score(ctx)
		if err != nil || has {
			return Score{Value: own}, err
		}
	}
	sum := 0.0
	for _, turn := range in.Trajectory.Turns {
		if turn.Reward != nil {
			continue
		}
		for _, r := range turn.Results {
			if r.Outcome != nil {
				sum += r.Outcome.Reward
			}
		}
	}
	return Score{Value: sum}, nil
}
