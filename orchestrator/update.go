package orchestrator

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
)

// step asks the objective for a batch, trains it and reports the step. In mode async rollouts go on meanwhile: the optimizer writes at
// the barrier of an engine that shares the parameters, and other engines get the weights while their requests pause.
func (t *run) step(ctx context.Context) error {
	start := time.Now()
	b, err := t.objective.Batch(ctx, objective.At{Step: t.state.Step, Version: t.state.Version, Dealt: t.state.Dealt})
	if err != nil {
		return err
	}
	return t.update(ctx, b, start.Add(-b.Before))
}

// update trains a batch that was waited for since start.
func (t *run) update(ctx context.Context, b *objective.Batch, start time.Time) error {
	j, step := t.job, b.Step
	if err := t.weights.Rest(ctx); err != nil {
		return err
	}
	// an update that has begun is finished even when the run is interrupted: half of one could not be resumed
	before := t.state.Version
	t.halfway = true
	m, err := t.trainer.Step(context.WithoutCancel(ctx), b.Batch)
	skipped, err := t.skip(step, err)
	if err != nil {
		return err
	}
	t.weights.Seconds = 0
	if e := t.weights.Engine(); e != nil && (t.state.Version != before || j.Engine.Sleep > 0) && !e.Capabilities().SharedParameters {
		if err := t.weights.Push(context.WithoutCancel(ctx), t.state.Version); err != nil {
			return err
		}
	}
	t.objective.Trained(ctx, t.state.Version, step+1 < j.Trainer.Steps)
	record := t.objective.Report(b, m, report.Facts{Version: t.state.Version, Whole: time.Since(start), Elapsed: t.elapsed(), Sync: t.weights.Seconds})
	t.state.Dealt = b.Dealt
	if record.SFT != nil && skipped == nil {
		t.state.Losses = append(t.state.Losses, record.SFT.Loss)
	}
	return t.finish(ctx, record, m, b.Finished, skipped)
}

// finish records a step that was taken or skipped.
func (t *run) finish(ctx context.Context, record report.Step, m trainer.Metrics, finished int, skipped error) error {
	step := t.state.Step
	if skipped != nil {
		record.Update.Skipped = 1
	}
	metrics, logged, note := t.past.Stored(step, record.Map())
	if note != "" {
		t.notes.note(note)
	}
	if t.past.Steps[step] != nil { // it is told as it was when it was first done
		record = report.FromMap(metrics)
	}
	var updates []store.Update
	for _, u := range m.Samples {
		updates = append(updates, store.Update{TrajectoryID: u.Trajectory, Sample: u.Sample, Step: step, OldLogprobs: u.OldLogprobs, Advantages: u.Advantages})
	}
	if err := t.folder.DB.AddStep(context.WithoutCancel(ctx), step, metrics, updates); err != nil {
		return err
	}
	t.state.Add(record, finished)
	t.halfway = false
	line := map[string]any{"step": step}
	for k, v := range metrics {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			line[k] = v
		}
	}
	t.sayNotes()
	t.say("%s", t.progress.Line(record, t.state.Step, t.job.Trainer.Steps, t.job.Rollout.Overlaps()))
	if skipped != nil {
		line["skipped"] = skipped.Error()
		t.say("skipped      %s", skipped)
	}
	if logged {
		return nil
	}
	return t.folder.Log(line)
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
