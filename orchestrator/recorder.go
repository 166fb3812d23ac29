package orchestrator

import (
	"context"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
)

// recorder writes down what a run did, once in the life of the run: into the store, the state, metrics.jsonl, and for the user. What an
// earlier process recorded stands.
type recorder struct {
	job       *job.Job
	folder    *runfolder.Folder
	recovered *recovery.Recovered
	state     *checkpoint.State
	console   console
	progress  report.Progress
}

// step records the step that the state is at, which was trained or skipped, and counts it. finished are its trajectories.
func (r *recorder) step(ctx context.Context, record report.Step, m trainer.Metrics, finished int, skipped error) error {
	step := r.state.Step
	if skipped != nil {
		record.Update.Skipped = 1
	}
	metrics, logged, note := r.recovered.Stored(step, record.Map())
	if note != "" {
		r.console.notes.Note(note)
	}
	if r.recovered.Steps[step] != nil { // it is told as it was when it was first done
		record = report.FromMap(metrics)
	}
	var updates []store.Update
	for _, u := range m.Samples {
		updates = append(updates, store.Update{
			TrajectoryID: u.Trajectory, Sample: u.Sample, Step: step, OldLogprobs: u.OldLogprobs, Advantages: u.Advantages, Entropy: u.Entropy,
		})
	}
	if err := r.folder.DB.AddStep(context.WithoutCancel(ctx), step, metrics, updates); err != nil {
		return err
	}
	r.state.Add(record, finished)
	line := map[string]any{"step": step + 1} // as the console counts: so many are done with it
	for k, v := range finite(metrics) {
		line[k] = v
	}
	r.console.news()
	r.console.tell(Event{Kind: StepDone, Step: r.state.Step, Steps: r.job.Trainer.Steps, Metrics: finite(metrics)},
		r.progress.Line(record, r.state.Step, r.job.Trainer.Steps, r.job.Rollout.Overlaps()))
	if skipped != nil {
		line["skipped"] = skipped.Error()
		r.console.say("skipped      %s", skipped)
	}
	if logged {
		return nil
	}
	return r.folder.Log(line)
}

// evaluation records one that was done.
func (r *recorder) evaluation(ctx context.Context, e report.Evaluation) error {
	if err := r.folder.DB.AddEvaluation(ctx, e.Name, e.Step, e); err != nil {
		return err
	}
	r.state.Evaluations.Put(e)
	r.console.tell(Event{Kind: Evaluated, Step: e.Step, Evaluation: &e}, e.Lines()...)
	return r.folder.Log(map[string]any{"step": e.Step, "eval": e})
}
