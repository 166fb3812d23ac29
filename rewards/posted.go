package rewards

import (
	"context"
	"errors"

	"github.com/agentfly/agentfly/resources"
)

var _ = declareReward("posted", newPosted, "what the agent, a program of its own, posted over the gateway or wrote into its result; missing: the reward where it did neither (null: the trajectory fails)")

// posted is the reward that an agent of its own, or who judges it, gave.
type posted struct{ missing *float64 }

func newPosted(_ *Builder, params map[string]any) (Reward, error) {
	var p struct {
		Missing *float64 `json:"missing"`
	}
	err := resources.Decode(params, &p)
	return posted{p.Missing}, err
}

func (posted) Name() string { return "posted" }

func (p posted) Score(_ context.Context, in Input) (Score, error) {
	switch {
	case in.Posted != nil:
		return Score{Value: *in.Posted}, nil
	case p.missing != nil:
		return Score{Value: *p.missing}, nil
	}
	return Score{}, errors.New("nobody posted a reward for the trajectory; have the agent post one to agentfly/reward or write it into its result, or set missing")
}
