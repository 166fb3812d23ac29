package objective

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// evaluatedAtOnce bounds the memory and the tools' state of an evaluation, whatever it has of tasks and samples.
const evaluatedAtOnce = 10_000

// evaluating is a sampler as evaluations have it: one that is cut off is done anew, so that nothing of it is recorded while it goes on, and it
// reports what a trajectory was paid, at once.
func evaluating(r rollout.Sampler) rollout.Sampler {
	r.Record, r.Recovered, r.AtOnce = nil, nil, evaluatedAtOnce
	if r.World != nil {
		world := *r.World
		world.Credit, world.Forget = 0, nil
		r.World = &world
	}
	return r
}

// Evaluate samples every task eval.samples times. Its seeds are its own, derived from the evaluation's name, and nothing of
// it is trained on. What the store has of one of the same name and step was cut off, and goes.
func Evaluate(ctx context.Context, r rollout.Sampler, db *store.Store, name string, step int, tasks []trajectory.Task, j *job.Job) (report.Evaluation, error) {
	r = evaluating(r)
	r.Sampling.Temperature = j.Eval.Temperature
	start := time.Now()
	phase := "eval-" + name
	if db != nil {
		if err := db.RemoveTrajectories(ctx, phase, step); err != nil {
			return report.Evaluation{}, err
		}
	}
	var done atomic.Int64
	groups, failed := r.Groups(ctx, phase, step, tasks, max(1, j.Eval.Samples), func(t *trajectory.Trajectory) error {
		if r.Told != nil {
			r.Told(int(done.Add(1)), len(tasks)*max(1, j.Eval.Samples))
		}
		if err := rollout.Fatal(t); err != nil {
			return err
		}
		t.Reward = t.Return() // with what was posted for its turns, which the comparisons of stored evaluations do not read
		t.TakeBack()
		if db == nil || ctx.Err() != nil {
			return nil
		}
		return db.AddTrajectory(ctx, phase, tasks[t.Group], t)
	})
	e := report.Evaluation{Name: name, Step: step, Seconds: time.Since(start).Seconds()}
	if err := ctx.Err(); err != nil {
		return e, err
	}
	if failed != nil {
		return e, failed
	}
	if err := rollout.TooManyFailed(j.Rollout, "evaluation "+name, groups); err != nil { // its score would say more of what failed than of the policy
		return e, err
	}
	if j.Eval.Samples > 1 {
		e.Samples = j.Eval.Samples
	}
	e.Score(groups, report.Scoring{K: j.Eval.PassAt(), Success: j.Data.Success, By: j.Eval.By, Acts: j.Environment != nil})
	if trajectories := len(tasks) * max(1, j.Eval.Samples); e.Failed == trajectories {
		return e, fmt.Errorf("orchestrator: evaluation %s: every trajectory failed, the first with: %s", name, groups[0].Trajectories[0].Err)
	}
	return e, nil
}
