package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// batch is what one step trains, and what was sampled for it.
type batch struct {
	step    int
	version int32              // of the policy before the update
	all     []trajectory.Group // that ended since the last batch and are used up, by running number
	trained []trajectory.Group // those of all that the update sees
	cut     [][]bool           // [trained][group_size] had not ended when an earlier batch was chosen
	running int                // trajectories that go on being sampled
	dropped int                // groups that were given up because they could not be trained in time
	lost    []int              // sampled tokens of each trajectory of such groups that ended since the last batch
	refills int
	dealt   []int         // the position in the data after the step, see state.Dealt
	before  time.Duration // spent on sampling it by a process that ended
}

// recordedBatch is a batch as it was recorded; what it trains is trained.
func recordedBatch(rec store.Batch, trained []trajectory.Group) *batch {
	b := &batch{step: rec.Step, version: rec.Version, trained: trained, running: rec.Running, dropped: rec.Stale, lost: rec.Lost, refills: rec.Refills, dealt: rec.Dealt, before: seconds(rec.Seconds)}
	at := 0
	for _, g := range trained {
		cut := make([]bool, len(g.Trajectories))
		for i := range cut {
			cut[i] = slices.Contains(rec.Cut, at+i)
		}
		b.cut, at = append(b.cut, cut), at+len(cut)
	}
	return b
}

// record is the batch as the log has it.
func (b *batch) record() store.Batch {
	rec := store.Batch{Step: b.step, Version: b.version, Groups: []store.GroupRef{}, Running: b.running, Stale: b.dropped, Lost: b.lost, Refills: b.refills, Dealt: b.dealt}
	trained := map[store.GroupRef]bool{}
	for _, g := range b.trained {
		rec.Groups = append(rec.Groups, refOf(g))
		trained[refOf(g)] = true
	}
	for _, g := range b.all {
		if !trained[refOf(g)] {
			rec.Others = append(rec.Others, refOf(g))
		}
	}
	for i, cut := range slices.Concat(b.cut...) {
		if cut {
			rec.Cut = append(rec.Cut, i)
		}
	}
	return rec
}

// sample waits for the batch of a step, whose trajectories are stored. With dynamic sampling (DAPO, arXiv 2503.14476,
// section 3.2) a group whose rewards are all equal is dropped, and the next task of its stratum is sampled in its place,
// until rollout.groups of them can be compared or rollout.max_refills is reached.
func (t *run) sample(ctx context.Context, step int) (*batch, error) {
	if t.feed == nil {
		feed, err := newFeed(t, step)
		if err != nil {
			return nil, err
		}
		t.feed = feed
	}
	return t.feed.Batch(ctx)
}

// usable tells whether the update can learn from a group: with dynamic sampling, whether the rewards of the trajectories
// that count differ.
func (t *run) usable(g trajectory.Group) bool {
	if !t.algorithm.DynamicSampling {
		return true
	}
	var rewards []float64
	for _, tr := range g.Trajectories {
		if tr.Err == "" && tr.ResponseTokens() > 0 && !(t.rollout.Cut == CutFilter && tr.Cut()) {
			rewards = append(rewards, tr.Reward)
		}
	}
	return algorithms.Informative(rewards)
}

// greedyPhase is the phase of greedy rollouts in the store. They are baselines and never trained on.
const greedyPhase = "greedy"

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

// tooManyFailed holds the failed trajectories of a step against rollout.max_failed.
func (t *run) tooManyFailed(step int, groups []trajectory.Group) error {
	return tooManyFailed(t.job.Rollout, fmt.Sprintf("step %d", step), groups)
}
