package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// sample waits for the batch of a step, whose trajectories are stored. With dynamic sampling (DAPO, arXiv 2503.14476,
// section 3.2) a group whose rewards are all equal is dropped, and the next task of its stratum is sampled in its place,
// until rollout.groups of them can be compared or rollout.max_refills is reached.
func (t *run) sample(ctx context.Context, step int) (*batch, error) {
	if t.feed == nil {
		feed, err := t.openFeed(step)
		if err != nil {
			return nil, err
		}
		t.feed = feed
	}
	return t.feed.Batch(ctx, t.state.Version)
}

// openFeed goes on where the log ends: at the groups that were outstanding, and behind all tasks that were dealt.
func (t *run) openFeed(step int) (*feed, error) {
	l := limitsOf(t.job, t.algorithm, len(t.sampler.Strata))
	feed := newFeed(t, feedOptions{
		limits: l, step: step, version: t.state.Version, size: t.job.Rollout.GroupSize, greedy: t.algorithm.NeedsGreedy(),
		dealt: t.sampler.Positions(t.state.Dealt, t.state.Step, l.each()),
	})
	if t.past.log == nil {
		return feed, nil
	}
	return feed, feed.restore(recovered{dir: t.dir, log: t.past.log, ended: t.past.ended, tasks: t.past.tasks})
}

// usable tells whether the update can learn from a group: with dynamic sampling, whether the rewards of the trajectories
// that count differ.
func (t *run) usable(g trajectory.Group) bool {
	if !t.algorithm.DynamicSampling {
		return true
	}
	var rewards []float64
	for _, tr := range g.Trajectories {
		if tr.Err == "" && tr.ResponseTokens() > 0 && !(t.rollout.Cut == rollout.CutFilter && tr.Cut()) {
			rewards = append(rewards, tr.Reward)
		}
	}
	return algorithms.Informative(rewards)
}

// overlongPart is the reward part that overlong shaping adds.
const overlongPart = "overlong"

// shape adds DAPO's soft punishment to the reward of a finished trajectory (arXiv 2503.14476, eq. 13): tokens are those of
// its longest sequence, prompt and observations included, as rollout.max_tokens counts them; a trajectory that was cut by
// that limit is at the limit.
func (t *run) shape(tr *trajectory.Trajectory) {
	o := t.algorithm.Overlong
	if o.Buffer == 0 || tr.Err != "" {
		return
	}
	tokens := 0
	for _, s := range tr.Samples {
		tokens = max(tokens, s.Len())
	}
	if tr.StopReason == trajectory.StopMaxTokens && !tr.Cut() { // one that max_new_tokens cut has the tokens that it has
		tokens = t.rollout.MaxTotal
	}
	parts := map[string]float64{overlongPart: o.Penalty(tokens, t.rollout.MaxTotal)}
	for name, v := range tr.RewardParts {
		parts[name] = v
	}
	tr.Reward, tr.RewardParts = tr.Reward+parts[overlongPart], parts
}

func (t *run) task(stratum, position int) trajectory.Task { return t.sampler.Task(stratum, position) }

func (t *run) observe(groups []trajectory.Group, dealt []int) { t.sampler.Observe(groups, dealt) }

func (t *run) admit(ctx context.Context, all ...store.Admission) error {
	return t.db.Admit(ctx, all...)
}

// tooManyFailed holds the failed trajectories of a step against rollout.max_failed.
func (t *run) tooManyFailed(step int, groups []trajectory.Group) error {
	return rollout.TooManyFailed(t.job.Rollout, fmt.Sprintf("step %d", step), groups)
}

// group samples and stores a group, with its greedy rollout where the estimator asks for one. ended is called as each
// trajectory ends, by its goroutine.
func (t *run) group(ctx context.Context, l *live, ended func(index int)) (trajectory.Group, error) {
	first := rollout.Place{Phase: store.Train, Step: l.step, Group: l.slot.group}
	var greedy trajectory.Group
	var greedyErr error
	var beside sync.WaitGroup
	if t.algorithm.NeedsGreedy() {
		r := t.rollout
		r.Sampling.Temperature = 0
		place := first
		place.Phase = store.Greedy
		beside.Go(func() { greedy, greedyErr = t.rollOut(ctx, r, place, l, 1, func(int) {}) })
	}
	group, err := t.rollOut(ctx, t.rollout, first, l, len(l.running), ended)
	beside.Wait()
	if len(greedy.Trajectories) > 0 {
		group.Greedy = greedy.Trajectories[0]
	}
	return group, errors.Join(err, greedyErr)
}

// rollOut samples, shapes and stores the trajectories of a group.
func (t *run) rollOut(ctx context.Context, r rollout.Sampler, first rollout.Place, l *live, size int, ended func(index int)) (trajectory.Group, error) {
	groups, err := r.GroupsFrom(ctx, first, []trajectory.Task{l.task}, size, func(tr *trajectory.Trajectory) error {
		defer ended(tr.Index)
		return t.keep(ctx, first.Phase, l.task, tr)
	})
	return groups[0], err
}
