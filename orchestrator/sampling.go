package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/trajectory"
)

// batch is what one step sampled.
type batch struct {
	all     []trajectory.Group // in the order of sampling
	trained []trajectory.Group // those of all that the update sees
	refills int
	dealt   []int // the position in the data after the step, see state.Dealt
}

// sample samples the groups of a step and stores their trajectories. With dynamic sampling (DAPO, arXiv 2503.14476,
// section 3.2) a group whose rewards are all equal is dropped, and the next task of its stratum is sampled in its place,
// until rollout.groups of them can be compared or rollout.max_refills is reached.
func (t *run) sample(ctx context.Context, step int) (*batch, error) {
	j := t.job
	each := j.Rollout.Groups / len(t.sampler.strata)
	b := &batch{dealt: t.state.position(t.sampler, each)}
	missing := slices.Repeat([]int{each}, len(t.sampler.strata))
	for {
		var tasks []trajectory.Task
		var strata []int // of tasks
		for k := range missing {
			for range missing[k] {
				tasks, strata = append(tasks, t.sampler.task(k, b.dealt[k])), append(strata, k)
				b.dealt[k]++
			}
		}
		groups, err := t.wave(ctx, Place{Phase: "train", Step: step, Group: len(b.all)}, tasks)
		if err != nil {
			return nil, err
		}
		b.all = append(b.all, groups...)
		if err := t.tooManyFailed(step, b.all); err != nil {
			return nil, err
		}
		for i, g := range groups {
			if t.usable(g) {
				b.trained = append(b.trained, g)
				missing[strata[i]]--
			}
		}
		if !t.algorithm.DynamicSampling || len(b.trained) == j.Rollout.Groups || b.refills == j.Rollout.MaxRefills {
			return b, nil
		}
		b.refills++
	}
}

// usable tells whether the update can learn from a group: with dynamic sampling, whether the rewards of the trajectories
// that count differ.
func (t *run) usable(g trajectory.Group) bool {
	if !t.algorithm.DynamicSampling {
		return true
	}
	var rewards []float64
	for _, tr := range g.Trajectories {
		if tr.Err == "" && tr.ResponseTokens() > 0 {
			rewards = append(rewards, tr.Reward)
		}
	}
	return algorithms.Informative(rewards)
}

// wave samples and stores the groups of some tasks, each with its greedy rollout where the estimator asks for one.
func (t *run) wave(ctx context.Context, first Place, tasks []trajectory.Task) ([]trajectory.Group, error) {
	var greedy []trajectory.Group
	var greedyErr error
	var beside sync.WaitGroup
	if t.algorithm.NeedsGreedy() {
		r := t.rollout
		r.Sampling.Temperature = 0
		place := first
		place.Phase = greedyPhase
		beside.Go(func() { greedy, greedyErr = t.rollOut(ctx, &r, place, tasks, 1) })
	}
	groups, err := t.rollOut(ctx, &t.rollout, first, tasks, t.job.Rollout.GroupSize)
	beside.Wait()
	for i := range greedy {
		groups[i].Greedy = greedy[i].Trajectories[0]
	}
	return groups, errors.Join(ctx.Err(), err, greedyErr)
}

// greedyPhase is the phase of greedy rollouts in the store. They are baselines and never trained on.
const greedyPhase = "greedy"

// rollOut samples, shapes and stores groups.
func (t *run) rollOut(ctx context.Context, r *Rollout, first Place, tasks []trajectory.Task, size int) ([]trajectory.Group, error) {
	var storeErr error
	groups := r.groupsFrom(ctx, first, tasks, size, func(tr *trajectory.Trajectory) {
		t.shape(tr)
		if err := t.db.AddTrajectory(ctx, first.Phase, tasks[tr.Group-first.Group], tr); err != nil && storeErr == nil {
			storeErr = err
		}
	})
	if ctx.Err() != nil { // what the store says then is the same
		return groups, nil
	}
	return groups, storeErr
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
	if tr.StopReason == trajectory.StopMaxTokens {
		tokens = t.rollout.MaxTotal
	}
	parts := map[string]float64{overlongPart: o.Penalty(tokens, t.rollout.MaxTotal)}
	for name, v := range tr.RewardParts {
		parts[name] = v
	}
	tr.Reward, tr.RewardParts = tr.Reward+parts[overlongPart], parts
}

// tooManyFailed holds the failed trajectories of a step against rollout.max_failed.
func (t *run) tooManyFailed(step int, groups []trajectory.Group) error {
	all, failed, first := 0, 0, ""
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			all++
			if tr.Err == "" {
				continue
			}
			if failed++; first == "" {
				first = tr.ErrOrigin + ": " + tr.Err
			}
		}
	}
	if float64(failed)/float64(all) <= t.job.Rollout.MaxFailed {
		return nil
	}
	return fmt.Errorf("orchestrator: step %d: %d of %d trajectories failed, more than rollout.max_failed (%v); the first: %s", step, failed, all, t.job.Rollout.MaxFailed, first)
}
