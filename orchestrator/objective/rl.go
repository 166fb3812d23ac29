package objective

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// RL is reinforcement learning on the rewards of rollouts.
type RL struct {
	job       *job.Job
	algorithm *algorithms.Algorithm
	sampler   *rollout.Sampler
	dealer    *data.Dealer
	held      *data.Tasks // nil: nothing is evaluated
	found     Found
	feed      atomic.Pointer[schedule.Feed] // nil before the first step
}

var _ Objective = (*RL)(nil)

// NewRL learns from rollouts of the tasks that dealer deals; held are evaluated, nil is none.
func NewRL(j *job.Job, a *algorithms.Algorithm, sampler *rollout.Sampler, dealer *data.Dealer, held *data.Tasks) *RL {
	return &RL{job: j, algorithm: a, sampler: sampler, dealer: dealer, held: held}
}

// Prepare implements Objective.
func (o *RL) Prepare(f Found) { o.found = f }

// String implements Objective.
func (o *RL) String() string {
	return fmt.Sprintf("%d groups x %d trajectories", o.job.Rollout.Groups, o.job.Rollout.GroupSize)
}

// Batch implements Objective: one that was recorded, or one that is sampled and then recorded.
func (o *RL) Batch(ctx context.Context, at At) (*Batch, error) {
	b, err := o.batch(ctx, at)
	if err == nil {
		o.reward(b)
		b.Groups = o.trained(b.Groups)
	}
	return b, err
}

// batch is Batch before its rewards are noted.
func (o *RL) batch(ctx context.Context, at At) (*Batch, error) {
	start := time.Now()
	sampled, err := o.recorded(ctx, at)
	switch {
	case err != nil:
	case sampled != nil:
		o.dealer.Observe(sampled.All, sampled.Dealt)
	case o.found.Recording != nil: // its tasks are those of the log
		sampled, err = o.found.Recording.Batch(ctx, at.Step, at.Version)
	default:
		if sampled, err = o.sample(ctx, at); err == nil {
			record := sampled.Record()
			record.Seconds = time.Since(start).Seconds()
			err = o.found.DB.AddBatch(ctx, record)
		}
	}
	if err == nil && o.found.Recording == nil {
		err = o.corrected(sampled, at)
	}
	if err != nil {
		return nil, err
	}
	return &Batch{
		Batch: trainer.Batch{Step: at.Step, Version: at.Version, Groups: pointers(sampled.Trained), FilterCut: o.sampler.Cut == rollout.CutFilter},
		Dealt: sampled.Dealt, Rollouts: sampled, Waited: time.Since(start) + sampled.Before, Before: sampled.Before,
	}, nil
}

// corrected refuses a batch with tokens of older policies where nothing corrects them. A job that samples such is refused when it is read; this batch
// was begun, or recorded, under another job, before the run went on.
func (o *RL) corrected(b *schedule.Batch, at At) error {
	if o.job.Rollout.MaxStaleness > 0 || o.algorithm.CorrectsStale() {
		return nil
	}
	stale := int32(0)
	for _, g := range b.Trained {
		if lowest := g.LowestVersion(o.sampler.Frozen); lowest >= 0 {
			stale = max(stale, at.Version-lowest)
		}
	}
	if stale == 0 {
		return nil
	}
	return job.InputError(fmt.Errorf("algorithm.correction: the batch of step %d was sampled, or begun, before the run went on with this job, and has tokens of %d policy versions before the step, which would count as the present policy's; give a correction, such as {kind: tis_token}, or the job of before, until step %d is done", at.Step+1, stale, at.Step+1))
}

// trained are the groups of a batch without the turns of agents that are frozen.
func (o *RL) trained(groups []*trajectory.Group) []*trajectory.Group {
	out := slices.Clone(groups)
	for g, group := range groups {
		for i, t := range group.Trajectories {
			left := t.Trained(o.sampler.Frozen)
			if left == t {
				continue
			}
			if out[g] == group { // what is reported has all turns
				own := *group
				out[g], own.Trajectories = &own, slices.Clone(group.Trajectories)
			}
			out[g].Trajectories[i] = left
		}
	}
	return out
}

// Trained implements Objective: further groups begin before the next batch is asked for, where a step would train them.
func (o *RL) Trained(ctx context.Context, version int32, more bool) {
	if feed := o.feed.Load(); feed != nil {
		feed.Trained(ctx, version, more)
	}
}

// Report implements Objective.
func (o *RL) Report(b *Batch, m trainer.Metrics, f report.Facts) report.Step {
	f.Waited, f.FilterCut, f.Frozen = b.Waited, b.FilterCut, o.sampler.Frozen
	f.Overlaps = o.job.Rollout.Overlaps()
	if log := o.found.Groups.Log; log != nil && b.Before == 0 { // a batch that was recorded has the time of those who sampled it
		f.Earlier = earlier(b.Rollouts.All, log)
	}
	return report.Describe(b.Rollouts, b.Rewards, m, f)
}

// Evaluates implements Objective.
func (o *RL) Evaluates() bool { return o.held != nil }

// Evaluate implements Objective: it samples the held-out tasks.
func (o *RL) Evaluate(ctx context.Context, name string, step int, toolsOff bool) (report.Evaluation, error) {
	r := *o.sampler
	r.ToolsOff = toolsOff || o.job.Control.ToolsOff
	return Evaluate(ctx, r, o.found.DB, name, step, o.held.Tasks, o.job)
}

// Stop implements Objective.
func (o *RL) Stop() {
	if feed := o.feed.Load(); feed != nil {
		feed.Close()
	}
}

// Groups implements Objective.
func (o *RL) Groups() *schedule.Groups {
	feed := o.feed.Load()
	if feed == nil {
		return nil
	}
	g := feed.Groups()
	return &g
}

// Close implements Objective.
func (o *RL) Close() error { return nil }

// reward notes the rewards of a batch, before the control that shuffles them does.
func (o *RL) reward(b *Batch) {
	b.Rewards, b.Finished = RewardsOf(b.Rollouts.All), 0
	for _, g := range b.Rollouts.All {
		for _, t := range g.Trajectories {
			if !t.Failed() {
				b.Finished++
			}
		}
	}
	if o.job.Control.ShuffleRewards {
		shuffleRewards(b.Rollouts.Trained, b.FilterCut, o.sampler.Frozen, o.job.Seed, b.Step)
	}
}

// sample waits for the batch of a step, whose trajectories are stored. With dynamic sampling (DAPO, arXiv 2503.14476,
// section 3.2) a group whose rewards are all equal is dropped, and the next task of its stratum is sampled in its place,
// until rollout.groups of them can be compared or rollout.max_refills is reached.
func (o *RL) sample(ctx context.Context, at At) (*schedule.Batch, error) {
	feed := o.feed.Load()
	if feed == nil {
		var err error
		if feed, err = o.openFeed(at); err != nil {
			return nil, err
		}
		o.feed.Store(feed)
	}
	return feed.Batch(ctx, at.Version)
}

// openFeed goes on where the log ends: at the groups that were outstanding, and behind all tasks that were dealt.
func (o *RL) openFeed(at At) (*schedule.Feed, error) {
	l := schedule.LimitsOf(o.job, o.algorithm, len(o.dealer.Strata))
	feed := schedule.NewFeed(o.rollouts(), schedule.Options{
		Limits: l, Step: at.Step, Version: at.Version, Size: o.job.Rollout.GroupSize, Greedy: o.algorithm.Estimator.Needs.Greedy, Trees: o.sampler.Trees != nil,
		Dealt: o.dealer.Positions(at.Dealt, at.Step, l.Each()), Frozen: o.sampler.Frozen,
	})
	if o.found.Groups.Log == nil {
		return feed, nil
	}
	if id := branchOf(o.found.Groups.Log); id != "" && o.sampler.Trees == nil {
		return nil, job.InputError(fmt.Errorf("rollout.tree: the run in %s has outstanding groups with branches, such as %s, and the job has no trees any more; continue with the settings that it began with", o.found.Groups.Dir, id))
	}
	over, err := feed.Restore(o.found.Groups)
	if err != nil {
		return nil, err
	}
	o.sampler.External.Forgo(o.sampler.RunName, over...)
	return feed, nil
}

// rollouts is what the feed asks.
func (o *RL) rollouts() *rollouts {
	return &rollouts{limits: &o.job.Rollout, algorithm: o.algorithm, sampler: o.sampler, dealer: o.dealer, db: o.found.DB, ended: o.found.Groups.Ended, begun: begunOf(o.found.Groups.Log)}
}

// recorded is the batch of a step that the log holds; nil: none.
func (o *RL) recorded(ctx context.Context, at At) (*schedule.Batch, error) {
	rec, ok := o.found.Batches[at.Step]
	if !ok {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if rec.Version != at.Version {
		return nil, fmt.Errorf("orchestrator: the batch of step %d was recorded for policy version %d, but the step begins with version %d: the checkpoint and %s are not of the same run", at.Step+1, rec.Version, at.Version, store.File)
	}
	refs := slices.Concat(rec.Groups, rec.Others)
	groups, err := o.found.DB.Reader.Groups(ctx, refs, store.Greedy)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		if task, ok := o.found.Groups.Tasks[groups[i].Task.ID]; ok {
			groups[i].Task = task
		}
	}
	b := schedule.Recorded(rec, groups[:len(rec.Groups):len(rec.Groups)])
	order := make([]int, len(refs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return refs[a].Compare(refs[b]) })
	for _, i := range order {
		b.All = append(b.All, groups[i])
	}
	return b, nil
}

func pointers(groups []trajectory.Group) []*trajectory.Group {
	out := make([]*trajectory.Group, len(groups))
	for i := range groups {
		out[i] = &groups[i]
	}
	return out
}

// RewardsOf are the rewards of the trajectories that have one, in order.
func RewardsOf(groups []trajectory.Group) []float64 {
	var out []float64
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if t.Scored() {
				out = append(out, t.Return())
			}
		}
	}
	return out
}

// counts tells whether the update takes in a trajectory of a group, of which the tokens of roles that frozen names are not trained (nil: none).
func counts(t *trajectory.Trajectory, of trajectory.Group, filterCut bool, frozen func(trajectory.Role) bool) bool {
	return trainer.FateOf(t.Trained(frozen), of.Greedy, filterCut) == trainer.Taken
}

// shuffleRewards permutes the rewards over the trajectories of a step that count: what is left to learn from them is nothing, and their distribution
// is that of the run.
func shuffleRewards(groups []trajectory.Group, filterCut bool, frozen func(trajectory.Role) bool, seed uint64, step int) {
	var all []*trajectory.Trajectory
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if counts(t, g, filterCut, frozen) {
				all = append(all, t)
			}
		}
	}
	rand.New(rand.NewPCG(seed, uint64(step))).Shuffle(len(all), func(i, k int) {
		all[i].Reward, all[k].Reward = all[k].Reward, all[i].Reward
		swapTurnRewards(all[i], all[k])
	})
}

// swapTurnRewards exchanges what two trajectories' turns were paid, turn by turn. What one was paid for turns that the other lacks goes into the
// other's own reward, so that their returns are exchanged whatever their lengths.
func swapTurnRewards(a, b *trajectory.Trajectory) {
	if len(a.Turns) > len(b.Turns) {
		a, b = b, a
	}
	for k := range b.Turns {
		if k < len(a.Turns) {
			a.Turns[k].Reward, b.Turns[k].Reward = b.Turns[k].Reward, a.Turns[k].Reward
		} else if paid := b.Turns[k].Reward; paid != nil {
			a.Reward, b.Turns[k].Reward = a.Reward+*paid, nil
		}
	}
}
