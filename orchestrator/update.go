package orchestrator

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// step samples, stores, updates and reports one step.
func (t *run) step(ctx context.Context) error {
	start := time.Now()
	b, err := t.recorded(ctx, t.state.Step)
	switch {
	case err != nil:
	case b != nil:
		t.sampler.Observe(b.All, b.Dealt)
	case t.replay != nil: // its tasks are those of the log
		b, err = t.replay.batch(ctx, t.state.Step)
	default:
		if b, err = t.sample(ctx, t.state.Step); err == nil {
			err = t.keepBatch(ctx, b, time.Since(start))
		}
	}
	if err != nil {
		return err
	}
	return t.update(ctx, b, start.Add(-b.Before))
}

// update trains a batch that was waited for since start. In mode async rollouts go on meanwhile: the optimizer writes at
// the barrier of an engine that shares the parameters, and other engines get the weights while their requests pause.
func (t *run) update(ctx context.Context, b *schedule.Batch, start time.Time) (err error) {
	j, step := t.job, b.Step
	waited := time.Since(start)
	taught := &distilled{}
	if t.teacher != nil {
		var shuffle *rand.Rand
		if j.Control.ShuffleTeacher {
			shuffle = rand.New(rand.NewPCG(j.Seed, uint64(step)))
		}
		if taught, err = t.distill(ctx, b.Trained, shuffle); err != nil {
			return err
		}
		if err := t.refusedByTeacher(b); err != nil {
			return err
		}
	}
	if err := t.weights.Rest(ctx); err != nil {
		return err
	}
	rewards := rewardsOf(b.All)
	if j.Control.ShuffleRewards {
		shuffleRewards(b.Trained, j.Seed, step)
	}
	// an update that has begun is finished even when the run is interrupted: half of one could not be resumed
	before := t.state.Version
	t.halfway = true
	m, err := t.trainer.Step(context.WithoutCancel(ctx), trainer.Batch{Step: step, Version: before, Groups: pointers(b.Trained), Advantages: taught.advantages, FilterCut: t.rollout.Cut == rollout.CutFilter})
	skipped, err := t.skip(step, err)
	if err != nil {
		return err
	}
	t.weights.Seconds = 0
	if (t.state.Version != before || j.Engine.Sleep > 0) && !t.weights.Engine().Capabilities().SharedParameters {
		if err := t.weights.Push(context.WithoutCancel(ctx), t.state.Version); err != nil {
			return err
		}
	}
	if t.feed != nil && step+1 < j.Trainer.Steps { // nothing begins that no step would train
		t.feed.Trained(ctx, t.state.Version)
	}
	record := t.describe(b, rewards, m, waited, time.Since(start))
	if t.teacher != nil {
		record["distill/reverse_kl"] = taught.reverseKL
	}
	t.state.Dealt = b.Dealt
	return t.finish(ctx, record, m, len(rewards), skipped)
}

// finish records a step that was taken or skipped.
func (t *run) finish(ctx context.Context, record map[string]float64, m trainer.Metrics, finished int, skipped error) error {
	step := t.state.Step
	if skipped != nil {
		record["update/skipped"] = 1
	}
	record, logged := t.past.stored(t, step, record)
	var updates []store.Update
	for _, u := range m.Samples {
		updates = append(updates, store.Update{TrajectoryID: u.Trajectory, Sample: u.Sample, Step: step, OldLogprobs: u.OldLogprobs, Advantages: u.Advantages})
	}
	if err := t.db.AddStep(context.WithoutCancel(ctx), step, record, updates); err != nil {
		return err
	}
	t.state.add(record, finished)
	t.halfway = false
	line := map[string]any{"step": step}
	for k, v := range record {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			line[k] = v
		}
	}
	t.sayNotes()
	t.progress(record)
	if skipped != nil {
		line["skipped"] = skipped.Error()
		t.say("skipped      %s", skipped)
	}
	if logged {
		return nil
	}
	return t.log(line)
}

// maxSkipped is how many steps in a row may be skipped: weights that are not finite themselves never recover.
const maxSkipped = 10

// skip decides what becomes of a step whose update failed: with trainer.on_nonfinite skip, one in which a number was not
// finite is passed over, and the reason returned as skipped.
func (t *run) skip(step int, failed error) (skipped, err error) {
	if failed == nil {
		t.state.SkippedInRow = 0
		return nil, nil
	}
	if t.job.Trainer.OnNonfinite != "skip" || !trainer.IsNonFinite(failed) {
		return nil, failed
	}
	if t.state.SkippedInRow++; t.state.SkippedInRow > maxSkipped {
		return nil, fmt.Errorf("orchestrator: step %d follows %d skipped ones and is not finite either; go back to an earlier checkpoint with a lower trainer.learning_rate: %w", step, maxSkipped, failed)
	}
	t.state.Skipped++
	return failed, nil
}

func pointers(groups []trajectory.Group) []*trajectory.Group {
	out := make([]*trajectory.Group, len(groups))
	for i := range groups {
		out[i] = &groups[i]
	}
	return out
}

func rewardsOf(groups []trajectory.Group) []float64 {
	var out []float64
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if t.Err == "" {
				out = append(out, t.Reward)
			}
		}
	}
	return out
}

// shuffleRewards permutes the rewards over all trajectories of a step: what is left to learn from them is nothing.
func shuffleRewards(groups []trajectory.Group, seed uint64, step int) {
	var all []*trajectory.Trajectory
	for _, g := range groups {
		all = append(all, g.Trajectories...)
	}
	rand.New(rand.NewPCG(seed, uint64(step))).Shuffle(len(all), func(i, k int) {
		all[i].Reward, all[k].Reward = all[k].Reward, all[i].Reward
	})
}
