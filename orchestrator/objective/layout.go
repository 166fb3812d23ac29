package objective

import (
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// Layout lays recorded conversations out in tokens, as rollouts with the sampler's prompt would have them.
type Layout struct {
	policy  *policy.Policy
	sampler *rollout.Sampler
}

// NewLayout lays out for a policy and with a sampler's prompt.
func NewLayout(p *policy.Policy, sampler *rollout.Sampler) Layout { return Layout{p, sampler} }

// SFT lays SFT data out in tokens: conversations as a rollout would have them, trajectories as they were sampled.
func (l Layout) SFT(m *data.SFT) (train, eval []*trajectory.Trajectory, err error) {
	if m.Trajectories != nil {
		if err := l.sameTokens(m.Path); err != nil {
			return nil, nil, err
		}
		train = m.Trajectories
	} else if train, err = l.render(m.Conversations); err != nil {
		return nil, nil, err
	}
	if eval, err = l.render(m.Eval); err != nil {
		return nil, nil, err
	}
	longest := l.policy.Config.MaxContext()
	for _, t := range slices.Concat(train, eval) {
		for _, sample := range t.Samples {
			if sample.Len() > longest {
				return nil, nil, job.InputError(fmt.Errorf("%s has %d tokens, and the model takes %d; shorten it or leave it out", t.TaskID, sample.Len(), longest))
			}
		}
	}
	return train, eval, nil
}

// sameTokens makes sure that the token ids of a run mean the same to the job's model.
func (l Layout) sameTokens(dir string) error {
	text, err := policy.LoadText(checkpoint.LastOf(dir))
	if err != nil {
		return job.InputError(fmt.Errorf("data.run: the run has no checkpoint that shows its tokenizer: %w", err))
	}
	if is, was := l.policy.Fingerprint(), text.Fingerprint(); is != was {
		return job.InputError(fmt.Errorf("data.run: %s was sampled with another tokenizer or chat template (fingerprint %.12s) than the model's (%.12s); its token ids mean something else here", dir, was, is))
	}
	return nil
}

func (l Layout) render(conversations []data.Conversation) ([]*trajectory.Trajectory, error) {
	var out []*trajectory.Trajectory
	for _, c := range conversations {
		c, err := l.observed(c)
		if err != nil {
			return nil, job.InputError(fmt.Errorf("%s: %w", c.ID, err))
		}
		recorded := masks.Recorded{Messages: c.Messages, Learned: c.Learned, Tools: c.Tools, Stops: l.sampler.Sampling.Stop}
		if c.Messages[0].Role != "system" { // then it is what follows the prompt of a rollout
			recorded.Prefix = l.sampler.Prefix
			if c.Tools == nil {
				recorded.Tools = l.sampler.Schemas
			}
		}
		samples, err := l.sampler.Renderer.Samples(recorded)
		if err != nil {
			return nil, job.InputError(fmt.Errorf("%s: %s", c.ID, job.Plain(err, "masks: conversation: ")))
		}
		out = append(out, &trajectory.Trajectory{ID: c.ID, TaskID: c.ID, Samples: samples, StopReason: trajectory.StopRecorded})
	}
	return out, nil
}
