package orchestrator

import (
	"context"

	"github.com/agentfly/agentfly/orchestrator/schedule"
)

// sample waits for the batch of a step, whose trajectories are stored. With dynamic sampling (DAPO, arXiv 2503.14476,
// section 3.2) a group whose rewards are all equal is dropped, and the next task of its stratum is sampled in its place,
// until rollout.groups of them can be compared or rollout.max_refills is reached.
func (t *run) sample(ctx context.Context, step int) (*schedule.Batch, error) {
	if t.feed == nil {
		feed, err := t.openFeed(step)
		if err != nil {
			return nil, err
		}
		t.feed = feed
	}
	return t.feed.Batch(ctx, t.state.Version)
}

// rollouts is what the run's feed asks.
func (t *run) rollouts() *rollouts {
	return &rollouts{limits: t.job.Rollout, algorithm: t.algorithm, sampler: &t.rollout, dealer: t.sampler, db: t.db, ended: t.past.ended}
}

// openFeed goes on where the log ends: at the groups that were outstanding, and behind all tasks that were dealt.
func (t *run) openFeed(step int) (*schedule.Feed, error) {
	l := schedule.LimitsOf(t.job, t.algorithm, len(t.sampler.Strata))
	feed := schedule.NewFeed(t.rollouts(), schedule.Options{
		Limits: l, Step: step, Version: t.state.Version, Size: t.job.Rollout.GroupSize, Greedy: t.algorithm.NeedsGreedy(),
		Dealt: t.sampler.Positions(t.state.Dealt, t.state.Step, l.Each()),
	})
	if t.past.log == nil {
		return feed, nil
	}
	return feed, feed.Restore(schedule.Recovered{Dir: t.dir, Log: t.past.log, Ended: t.past.ended, Tasks: t.past.tasks})
}
