package objective

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// rollouts samples, shapes and stores the groups that a feed asks for.
type rollouts struct {
	limits    *job.Rollout
	algorithm *algorithms.Algorithm
	sampler   *rollout.Sampler
	dealer    *data.Dealer
	db        *store.Store
	ended     map[string]*trajectory.Trajectory // by id: recorded by a process before this one
	begun     map[store.GroupRef][]tree.Leaf    // that such a process had begun, of trees
}

var _ schedule.Work = (*rollouts)(nil)

// Usable tells whether the update can learn from a group: with dynamic sampling, whether the rewards of the trajectories
// that count differ.
func (w *rollouts) Usable(g trajectory.Group) bool {
	if !w.algorithm.DynamicSampling {
		return true
	}
	var rewards []float64
	for _, tr := range g.Trajectories {
		if counts(tr, g, w.sampler.Cut == rollout.CutFilter, w.sampler.Frozen) {
			rewards = append(rewards, tr.Return())
		}
	}
	return algorithms.Informative(rewards)
}

// shape adds DAPO's soft punishment to the reward of a finished trajectory (arXiv 2503.14476, eq. 13): tokens are those of
// its longest sequence, prompt and observations included, as rollout.max_tokens counts them; a trajectory that was cut by
// that limit is at the limit.
func (w *rollouts) shape(tr *trajectory.Trajectory) {
	o := w.algorithm.Overlong
	if o.Buffer == 0 || tr.Failed() {
		return
	}
	tokens := 0
	for _, s := range tr.Samples {
		tokens = max(tokens, s.Len())
	}
	if tr.StopReason == trajectory.StopMaxTokens && !tr.Cut() { // one that max_new_tokens cut has the tokens that it has
		tokens = w.sampler.MaxTotal
	}
	penalty := o.Penalty(tokens, w.sampler.MaxTotal)
	parts := map[string]float64{}
	maps.Copy(parts, tr.RewardParts)
	parts[algorithms.OverlongPart] = penalty
	tr.Reward, tr.RewardParts = tr.Reward+penalty, parts
}

func (w *rollouts) Task(stratum, position int) trajectory.Task {
	return w.dealer.Task(stratum, position)
}

func (w *rollouts) Observe(groups []trajectory.Group, dealt []int) { w.dealer.Observe(groups, dealt) }

func (w *rollouts) Admit(ctx context.Context, all ...store.Admission) error {
	return w.db.Admit(ctx, all...)
}

// TooManyFailed holds the failed trajectories of a step against rollout.max_failed.
func (w *rollouts) TooManyFailed(step int, groups []trajectory.Group) error {
	return rollout.TooManyFailed(*w.limits, fmt.Sprintf("step %d", step+1), groups)
}

// Sample samples and stores a group, with its greedy rollout where the estimator asks for one. ended is called as each
// trajectory ends, by its goroutine.
func (w *rollouts) Sample(ctx context.Context, l *schedule.Group, ended func(index int)) (trajectory.Group, error) {
	first := rollout.Place{Phase: store.Train, Step: l.Step, Group: l.Slot.Group}
	var greedy trajectory.Group
	var greedyErr error
	var beside sync.WaitGroup
	if w.algorithm.Estimator.Needs.Greedy {
		r := *w.sampler
		r.Sampling.Temperature = 0
		place := first
		place.Phase = store.Greedy
		beside.Go(func() { greedy, greedyErr = w.rollOut(ctx, r, place, l, 1, func(int) {}) })
	}
	group, err := w.rollOut(ctx, *w.sampler, first, l, len(l.Running), ended)
	beside.Wait()
	if len(greedy.Trajectories) > 0 {
		group.Greedy = greedy.Trajectories[0]
	}
	return group, errors.Join(err, greedyErr)
}

// rollOut samples, shapes and stores the trajectories of a group.
func (w *rollouts) rollOut(ctx context.Context, r rollout.Sampler, first rollout.Place, l *schedule.Group, size int, ended func(index int)) (trajectory.Group, error) {
	if r.Trees != nil && first.Phase == store.Train {
		return w.grow(ctx, r, first, l, ended)
	}
	groups, err := r.GroupsFrom(ctx, first, []trajectory.Task{l.Task}, size, func(tr *trajectory.Trajectory) error {
		defer ended(tr.Index)
		return w.keep(ctx, first.Phase, l.Task, tr)
	})
	return groups[0], err
}

// grow is rollOut of a group whose trajectories branch. They are one thing to the feed: none of them has ended before all have.
func (w *rollouts) grow(ctx context.Context, r rollout.Sampler, first rollout.Place, l *schedule.Group, ended func(index int)) (trajectory.Group, error) {
	begun := w.begun[store.GroupRef{Step: first.Step, Group: first.Group}]
	group, err := r.Grow(ctx, first, l.Task, len(l.Running), begun, func(tr *trajectory.Trajectory) error {
		return w.keep(ctx, first.Phase, l.Task, tr)
	})
	if err == nil && ctx.Err() == nil && len(group.Trajectories) != len(l.Running) {
		err = fmt.Errorf("orchestrator: %s: the trees of group %d have %d trajectories, and %d were admitted", l.Task.ID, first.Group, len(group.Trajectories), len(l.Running))
	}
	for i := range l.Running {
		ended(i)
	}
	return group, err
}

// begunOf are the leaves of trees in the outstanding groups of a log.
func begunOf(log *store.Recovery) map[store.GroupRef][]tree.Leaf {
	out := map[store.GroupRef][]tree.Leaf{}
	if log == nil {
		return out
	}
	for _, g := range log.Training() {
		ref := store.GroupRef{Step: g.Step, Group: g.Group}
		for _, t := range slices.Concat(g.Finished, g.Partial) {
			if t != nil {
				out[ref] = append(out[ref], tree.Leaf{Index: t.Index, Branch: t.Branch, Forked: t.Forked, At: t.ForkedAt})
			}
		}
	}
	return out
}

// earlier is how many sampled tokens of groups a process before this one recorded. What began anew since has other turns.
func earlier(groups []trajectory.Group, log *store.Recovery) (tokens int) {
	recorded := map[string]*trajectory.Trajectory{}
	for _, g := range log.Training() {
		for _, t := range slices.Concat(g.Finished, g.Partial) {
			if t != nil {
				recorded[t.ID] = t
			}
		}
	}
	for _, g := range groups {
		for _, t := range g.Trajectories {
			was := recorded[t.ID]
			for k := range t.Turns {
				is := &t.Turns[k]
				if was != nil && k < len(was.Turns) && t.Owns(k) && is.Seed == was.Turns[k].Seed && is.EngineSeconds == was.Turns[k].EngineSeconds {
					tokens += is.Sampled()
				}
			}
		}
	}
	return tokens
}

// branchOf is the id of a trajectory that forks off another one in the outstanding groups of a log; "": there is none.
func branchOf(log *store.Recovery) string {
	for _, g := range log.Training() {
		for _, t := range slices.Concat(g.Finished, g.Partial) {
			if t != nil && t.Branch != "" {
				return t.ID
			}
		}
	}
	return ""
}

// keep records the end of a trajectory, its reward shaped, before its group counts as complete.
func (w *rollouts) keep(ctx context.Context, phase string, task trajectory.Task, tr *trajectory.Trajectory) error {
	switch {
	case w.ended[tr.ID] == tr: // it is recorded
		return nil
	case tr.StopReason == trajectory.StopCancelled: // it goes on when the run is resumed
		return nil
	}
	if err := rollout.Fatal(tr); err != nil {
		return err
	}
	w.shape(tr)
	return w.db.AddTrajectory(ctx, phase, task, tr)
}
