package rewards

import (
	"context"

	"github.com/agentfly/agentfly/resources"
)

var _ = declareReward("environment", newEnvironment, "what the environment paid: its own score of the episode, else the sum of the rewards of its steps")

// environment is what the environment paid: its own score of the episode where it has one, else the sum of its rewards. Those that were paid to
// turns already are taken off, so that all that the trajectory is paid comes to the same. A reward that it is a part of gets all of it: nothing of that
// was paid to a turn.
type environment struct{}

func newEnvironment(_ *Builder, params map[string]any) (Reward, error) {
	return environment{}, resources.Decode(params, &struct{}{})
}

func (environment) Name() string { return "environment" }

func (environment) Score(ctx context.Context, in Input) (Score, error) {
	left, byTurn, paid := 0.0, 0.0, false
	for _, turn := range in.Trajectory.Turns {
		for _, r := range turn.Results {
			switch {
			case r.Outcome == nil:
			case turn.Reward != nil:
				byTurn, paid = byTurn+r.Outcome.Reward, true
			default:
				left += r.Outcome.Reward
			}
		}
	}
	whole := left + byTurn
	if in.Episode != nil {
		own, has, err := in.Episode.Score(ctx)
		if err != nil {
			return Score{}, err
		}
		if has {
			whole, left = own, own-byTurn
		}
	}
	if !paid || in.within {
		return Score{Value: whole}, nil
	}
	return Score{Value: left, Parts: map[string]float64{Shown: whole}}, nil
}
