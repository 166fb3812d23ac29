package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// learner is what a run needs of a trainer.Trainer.
type learner interface {
	Step(ctx context.Context, b trainer.Batch) (trainer.Metrics, error)
	Logprobs(ctx context.Context, samples []*trajectory.Sample, temperature float64) ([]trainer.SampleLogprobs, error)
	Load(dir string) error
	Save(dir string) error
	Release() error
	Close() error
}

var _ learner = (*trainer.Trainer)(nil)

// training is the steps of a run, one after the other, with the evaluations and checkpoints between them. Everything that it uses is open,
// and is closed by others.
type training struct {
	session     *session.Session
	algorithm   *algorithms.Algorithm
	trainer     learner
	objective   objective.Objective
	state       *checkpoint.State
	dir         string // of the run
	recorder    recorder
	checkpoints checkpoints
	console     console
	activity    *activity
	findings    report.Findings
	started     time.Time           // in this process; zero outside the loop
	told        environments.Stats  // of the job's environments, at the last step
	requests    *runfolder.Requests // what others ask of the run; nil: nobody can
	stop        context.CancelFunc  // ends the run as an interruption does
	deaf        bool                // requests cannot be read, which was told
	reports     *reports            // nil: the job has none
	late        []string            // reports that are behind at the end
	begun       int                 // steps whose update has begun: more than state.Step while the end of one is not recorded
}

// loop takes the steps that are left, and saves what came of them.
func (t *training) loop(ctx context.Context) error {
	j := t.session.Job
	t.console.tell(Event{Kind: Begin, Job: j.Name, Dir: t.dir, Step: t.state.Step, Steps: j.Trainer.Steps},
		fmt.Sprintf("%s: %d steps of %s, model %s, run folder %s", j.Name, j.Trainer.Steps, t.objective, modelName(j), t.dir))
	for _, note := range t.session.Notes.Early() {
		t.console.warn(note)
	}
	t.console.news()
	t.started = time.Now()
	ctx, t.stop = context.WithCancel(ctx)
	defer t.stop()
	told := make(chan struct{})
	quiet := context.AfterFunc(ctx, func() { // at once: what is let end may take minutes
		defer close(told)
		t.console.say("%s", t.activity.interrupted())
	})
	err := t.steps(ctx)
	if !quiet() {
		<-told
	}
	t.objective.Stop()
	t.session.NoteLeftOver()
	t.console.news()
	t.state.Seconds = t.seconds()
	t.started = time.Time{}
	if err == nil {
		return t.save()
	}
	switch caught := (*panics.Error)(nil); {
	case ctx.Err() == nil && errors.As(err, &caught): // code that the program brought, not the run's
		return fmt.Errorf("%w\norchestrator: what the run recorded is kept: correct the code that panicked, then the run can go on with --resume", err)
	case ctx.Err() == nil:
		return err
	case t.begun > t.state.Step: // the weights may be those after the step: saved now, its update would be done twice
		return fmt.Errorf("orchestrator: interrupted while step %d was updated, which failed, so nothing is saved; --resume goes on at the last checkpoint and the log: %w", t.state.Step+1, err)
	}
	if err := t.save(); err != nil {
		return fmt.Errorf("orchestrator: interrupted, and the state could not be saved: %w", err)
	}
	t.console.say("interrupted after step %d; saved in %s", t.state.Step, checkpoint.LastOf(t.dir))
	return ErrInterrupted
}

func modelName(j *job.Job) string {
	if j.Model.Path != "" {
		return j.Model.Path
	}
	return "from scratch"
}

func (t *training) steps(ctx context.Context) error {
	j := t.session.Job
	if err := t.evaluate(ctx, "before", false); err != nil {
		return err
	}
	if err := t.evaluateStep(ctx); err != nil { // an interruption may have cut it off
		return err
	}
	for t.state.Step < j.Trainer.Steps && !t.stalled() {
		if err := t.obey(ctx); err != nil {
			return err
		}
		if err := t.step(ctx); err != nil {
			return err
		}
		if err := t.evaluateStep(ctx); err != nil {
			return err
		}
		t.reports.step()
		if n := j.Checkpoint.Every; n > 0 && t.state.Step%n == 0 && t.state.Step < j.Trainer.Steps {
			if err := t.save(); err != nil {
				return err
			}
		}
	}
	if err := t.evaluate(ctx, "after", false); err != nil {
		return err
	}
	if j.Eval.ToolOff {
		return t.evaluate(ctx, "tool_off", true)
	}
	return nil
}

// stalled tells whether eval.stop_after ends the run now.
func (t *training) stalled() bool {
	return t.state.Evaluations.Stalled(t.state.Step, t.session.Job.Eval.StopAfter)
}

// step asks the objective for a batch, trains it and reports the step. In mode async rollouts go on meanwhile: the optimizer writes at
// the barrier of an engine that shares the parameters, and other engines get the weights while their requests pause.
func (t *training) step(ctx context.Context) error {
	start := time.Now()
	t.activity.begin(sampling, "waiting for the batch of step %d", t.state.Step+1)
	b, err := t.objective.Batch(ctx, objective.At{Step: t.state.Step, Version: t.state.Version, Dealt: t.state.Dealt})
	if err != nil {
		return err
	}
	return t.update(ctx, b, start.Add(-b.Before))
}

// update trains a batch that was waited for since start.
func (t *training) update(ctx context.Context, b *objective.Batch, start time.Time) error {
	j, step, weights := t.session.Job, b.Step, &t.session.Weights
	_, replayed := t.recorder.recovered.Batches[step] // the tools may have been mended since
	if b.Rollouts != nil && !replayed {
		if err := t.findings.Raising(b.Rollouts); err != nil {
			return err
		}
	}
	if err := weights.Rest(ctx); err != nil {
		return err
	}
	// an update that has begun is finished even when the run is interrupted: half of one could not be resumed
	before := t.state.Version
	t.begun = t.state.Step + 1
	t.activity.begin(updating, "the update of step %d", t.begun)
	m, err := t.trainer.Step(context.WithoutCancel(ctx), b.Batch)
	skipped, err := t.skip(step, err)
	if err != nil {
		return err
	}
	weights.Seconds = 0
	if e := weights.Engine(); e != nil && (t.state.Version != before || j.Engine.Sleep > 0) && !e.Capabilities().SharedParameters {
		if err := weights.Push(context.WithoutCancel(ctx), t.state.Version); err != nil {
			return err
		}
	}
	t.objective.Trained(ctx, t.state.Version, step+1 < j.Trainer.Steps)
	record := t.objective.Report(b, m, report.Facts{Version: t.state.Version, Whole: time.Since(start), Elapsed: t.seconds(), Sync: weights.Seconds})
	if record.Rollouts != nil {
		record.Rollouts.Environments = environmentsOf(t.session, &t.told)
	}
	t.state.Dealt = b.Dealt
	if record.SFT != nil && skipped == nil {
		t.state.Losses = append(t.state.Losses, record.SFT.Loss)
	}
	if err := t.recorder.step(ctx, record, m, b.Finished, skipped); err != nil {
		return err
	}
	t.tell(b, record, report.Learned{Moved: t.state.Version != before, Skipped: skipped != nil})
	return nil
}

// tell says below the line of a step what failed in it, and what keeps the run from learning.
func (t *training) tell(b *objective.Batch, record report.Step, l report.Learned) {
	if b.Rollouts == nil {
		return
	}
	for _, line := range report.FailureLines(b.Rollouts.All) {
		t.console.say("  %s", line)
	}
	for _, note := range t.findings.Step(b.Rollouts, record, l) {
		t.console.warn(note)
	}
}

// maxSkipped is how many steps in a row may be skipped: weights that are not finite themselves never recover.
const maxSkipped = 10

// skip decides what becomes of a step whose update failed: with trainer.on_nonfinite skip, one in which a number was not
// finite is passed over, and the reason returned as skipped.
func (t *training) skip(step int, failed error) (skipped, err error) {
	if failed == nil {
		t.state.SkippedInRow = 0
		return nil, nil
	}
	if t.session.Job.Trainer.OnNonfinite != "skip" || !trainer.IsNonFinite(failed) {
		return nil, failed
	}
	if t.state.SkippedInRow++; t.state.SkippedInRow > maxSkipped {
		return nil, fmt.Errorf("orchestrator: step %d follows %d skipped ones and is not finite either; go back to an earlier checkpoint with a lower trainer.learning_rate: %w", step+1, maxSkipped, failed)
	}
	t.state.Skipped++
	return failed, nil
}

// evaluateStep runs the evaluation that eval.every wants at this step, if any. The end of a run has its own.
func (t *training) evaluateStep(ctx context.Context) error {
	j, step := t.session.Job, t.state.Step
	if n := j.Eval.Every; n == 0 || step == 0 || step%n != 0 || step >= j.Trainer.Steps || t.state.Evaluations.Has("after", step) {
		return nil
	}
	return t.evaluate(ctx, fmt.Sprintf("step-%d", step), false)
}

// evaluate runs an evaluation once at its step in the life of a run. A finished run that goes on to more steps evaluates
// its end again.
func (t *training) evaluate(ctx context.Context, name string, toolsOff bool) error {
	if !t.objective.Evaluates() {
		return nil
	}
	if t.state.Evaluations.Has(name, t.state.Step) {
		return t.checkpoints.keepBest(t.saved())
	}
	t.activity.begin(evaluating, "evaluation %s", name)
	e, err := t.objective.Evaluate(ctx, name, t.state.Step, toolsOff)
	if err != nil {
		return err
	}
	if err := t.recorder.evaluation(ctx, e); err != nil {
		return err
	}
	return t.checkpoints.keepBest(t.saved())
}

// save writes a checkpoint of where the run stands.
func (t *training) save() error {
	t.activity.begin(saving, "the checkpoint after step %d", t.state.Step)
	return t.checkpoints.save(t.saved())
}

// saved is the state as a checkpoint has it: with the time up to now.
func (t *training) saved() checkpoint.State {
	state := *t.state
	state.Seconds = t.seconds()
	return state
}

// seconds is how long the run has taken since its first rollout, over resumes.
func (t *training) seconds() float64 {
	if t.started.IsZero() {
		return t.state.Seconds
	}
	return t.state.Seconds + time.Since(t.started).Seconds()
}

// summary is what the run came to so far.
func (t *training) summary() report.Summary {
	j := t.session.Job
	out := t.state.Summary(t.state.Step, j.SFT != nil)
	out.Job, out.Reports, out.Distill = j.Name, t.late, j.Distill != nil
	if t.state.Step < j.Trainer.Steps {
		out.Stopped = t.state.Evaluations.StoppedBy(t.state.Step, j.Eval.StopAfter)
	}
	return out
}

// endReports ends the reports of a run that ended so; what is behind is told by the summary, or where there is none, here.
func (t *training) endReports(ctx context.Context, ended error) {
	state := overview.Ended
	switch {
	case errors.Is(ended, ErrInterrupted):
		state = overview.Interrupted
	case ended != nil:
		state = overview.Failed
	}
	t.late = t.reports.finish(ctx, state)
	for _, late := range t.late {
		if ended != nil {
			t.console.warn(late)
		}
	}
}

// advise adds what the log says of the whole run: held-out tasks one by one, and what to try next.
func (t *training) advise(ctx context.Context, s *report.Summary) error {
	db := t.recorder.folder.DB
	if db == nil {
		return nil
	}
	steps, err := db.Reader.Steps()
	if err != nil {
		return err
	}
	s.Advice = report.Advice(steps, t.state.Evaluations, setupOf(t.dir, t.session.Job, t.algorithm))
	changed, err := overview.Improved(ctx, t.dir)
	if err != nil || changed == nil || changed.Tasks == 0 {
		return err
	}
	s.Tasks = map[string]float64{
		"tasks": float64(changed.Tasks), "better": float64(changed.Better), "worse": float64(changed.Worse), "mean": changed.Mean, "low": changed.Low, "high": changed.High,
	}
	return nil
}

// setupOf is what advice for a run of the job needs to know.
func setupOf(dir string, j *job.Job, a *algorithms.Algorithm) report.Setup {
	s := report.Setup{Dir: dir, Overlaps: j.Rollout.Overlaps(), NoAsync: !job.AllowsAsync(j, a), CutParse: j.Rollout.Cut == "parse", SFT: j.SFT != nil, Distill: j.Distill != nil}
	if j.SFT != nil {
		s.Epochs = j.SFT.Epochs
	}
	return s
}

// writeSummary writes summary.json, and tells the user what the run came to.
func (t *training) writeSummary(ctx context.Context) error {
	s := t.summary()
	if err := t.advise(context.WithoutCancel(ctx), &s); err != nil { // the run is done: this is no reason to fail
		t.console.warn("what the held-out tasks and the steps say is left out of the summary: " + err.Error())
	}
	if err := modelfile.WriteJSON(filepath.Join(t.dir, "summary.json"), s); err != nil {
		return err
	}
	best := ""
	if t.checkpoints.folder.Target(checkpoint.Best) != "" {
		best = checkpoint.BestOf(t.dir)
	}
	if t.console.event != nil {
		t.console.event(Event{Kind: Summarized, Step: s.Steps, Summary: &s})
	}
	s.Print(t.console.say, t.dir, t.session.Job.Path(), checkpoint.LastOf(t.dir), best, job.Talks(t.session.Job))
	return nil
}
