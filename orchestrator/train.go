package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// ErrInterrupted says that the run was stopped from outside, saved itself, and can be resumed.
var ErrInterrupted = errors.New("orchestrator: the run was interrupted and saved; continue it with --resume")

// Options of a run.
type Options struct {
	Resume    bool
	Out       io.Writer // progress, one line at a time
	Ranks     int       // processes that train, which this one starts; torchrun's variables come before it. 0 and 1: one
	Arguments []string  // of the command line that starts this run; needed for Ranks
	ErrOut    io.Writer // of the processes that Ranks starts; nil: standard error
}

func (o Options) launch() processes.Launch {
	return processes.Launch{Ranks: o.Ranks, Arguments: o.Arguments, ErrOut: o.ErrOut}
}

// learner is what a run needs of policy.Trainer.
type learner interface {
	Step(ctx context.Context, b trainer.Batch) (trainer.Metrics, error)
	Logprobs(ctx context.Context, samples []*trajectory.Sample, temperature float64) ([]trainer.SampleLogprobs, error)
	Load(dir string) error
	Save(dir string) error
	Release() error
	Close() error
}

var _ learner = (*trainer.Trainer)(nil)

// run is one training run.
type run struct {
	*session
	options   Options
	folder    *runfolder.Folder
	algorithm *algorithms.Algorithm
	trainer   learner
	ranks     *processes.Group
	dealer    *data.Dealer // nil in supervised fine-tuning
	objective objective.Objective
	state     checkpoint.State
	past      recovery.Recovered
	started   time.Time // of this process; zero outside the loop
	halfway   bool      // the weights are those of a step whose end is not recorded: no state to save
	progress  report.Progress
}

// Train runs a job to its end, or to an interruption: then it saves what it has and returns ErrInterrupted.
func Train(ctx context.Context, j *job.Job, r Registries, o Options) (sum report.Summary, err error) {
	if err := j.TrainingErrors(); err != nil {
		return sum, err
	}
	group, err := processes.Of(j, o.launch())
	if err != nil {
		return sum, err
	}
	if group.Config.Rank > 0 { // it samples nothing: data, tools and rewards are rank 0's
		algorithm, err := job.Algorithm(j, r.Algorithms)
		if err != nil {
			return sum, err
		}
		return sum, follow(ctx, j, algorithm, group, o)
	}
	t := &run{session: newSession(j), options: o, folder: runfolder.New(j.Output, o.Resume), ranks: group}
	defer func() {
		t.release(err)
		err = errors.Join(err, t.close())
	}()
	if group.Launched { // the others wait already, for an index that is built or for what is wrong here
		err = group.Join(ctx, o.launch())
	}
	if err == nil {
		t.algorithm, err = t.check(ctx, r)
	}
	if err == nil {
		err = job.Trainable(j, t.algorithm)
	}
	if err == nil {
		err = t.reach(ctx, false)
	}
	if err == nil {
		err = t.prepare(ctx, j)
	}
	if err != nil {
		if o.Resume && ctx.Err() != nil { // what was saved is as it was
			err = fmt.Errorf("%w (it had not gone on yet: %w)", ErrInterrupted, err)
		}
		return sum, err
	}
	if err := t.loop(ctx); err != nil {
		return t.summary(), err
	}
	return t.summary(), t.writeSummary()
}

// warn tells the user something at once.
func (t *run) warn(note string) { t.say("note: %s", note) }

func (t *run) say(format string, args ...any) { fmt.Fprintf(t.options.Out, format+"\n", args...) }

// prepare reads everything else that can be wrong before the first rollout. The session is equipped already.
func (t *run) prepare(ctx context.Context, j *job.Job) (err error) {
	var learn *data.SFT
	var held *data.Tasks
	var files []data.File
	conversations := 0 // of supervised fine-tuning, over its epochs
	if j.SFT != nil {
		if j, learn, conversations, err = objective.ReadSFT(j); err != nil {
			return err
		}
		files = []data.File{{Name: "train", Path: learn.Path, Hash: learn.Hash}}
	} else {
		train, eval, deal, err := data.Read(j)
		if err != nil {
			return err
		}
		held, t.dealer, files = eval, deal, train.Files("train")
	}
	if err := t.folder.Check(); err != nil {
		return err
	}
	if t.options.Resume { // a new run's folder is not there yet
		if err := t.folder.Lock(t.warn); err != nil {
			return err
		}
	}
	if err := t.folder.Identify(j.Name); err != nil {
		return err
	}
	t.weights.Run = t.folder.Name
	if err := t.ranks.Join(ctx, t.options.launch()); err != nil {
		return err
	}
	from := ""
	if t.options.Resume {
		if from, err = t.state.Load(t.folder.Dir); err != nil {
			return err
		}
	}
	if t.state.Data, err = data.SameFiles(t.folder.Dir, t.state.Data, files); err != nil {
		return err
	}
	t.state.Curriculum = t.dealer.Resume(t.state.Curriculum, t.state.Step, t.state.Dealt)
	weights := from
	if j.Model.LoRA.On() { // the job's own base; the trainer's folder holds the adapter
		weights = ""
	}
	t.job = j
	if err := t.session.open(ctx, weights); err != nil {
		return err
	}
	if err := t.weights.Trainable(); err != nil {
		return err
	}
	t.session.ranks = t.ranks
	if err := t.ranks.Limit(ctx, t.worker); err != nil {
		return err
	}
	if o := t.algorithm.Overlong; o.Buffer > 0 && o.Buffer >= t.rollout.MaxTotal {
		return j.Fail("algorithm.overlong.buffer", "%d tokens are not less than the %d that the model takes", o.Buffer, t.rollout.MaxTotal)
	}
	if t.objective, err = t.newObjective(ctx, learn, conversations, held); err != nil {
		return err
	}
	if err := t.folder.Open(j, t.notes.know); err != nil { // not earlier: a run that could not begin leaves none behind
		return err
	}
	t.rollout.Record = t.folder.DB.AddTurn
	made, err := t.session.trainer(t.algorithm, &t.state.Version)
	if err != nil {
		return err
	}
	t.trainer = made
	if from != "" {
		if err := t.trainer.Load(filepath.Join(from, checkpoint.TrainerFolder)); err != nil {
			return err
		}
	}
	if err := t.weights.Begin(ctx, t.state.Version); err != nil {
		return err
	}
	if err := t.recover(ctx); err != nil {
		return err
	}
	t.objective.Prepare(t.found())
	return nil
}

// found is what the objective begins with.
func (t *run) found() objective.Found {
	return objective.Found{
		DB: t.folder.DB, Scorer: t.trainer, Batches: t.past.Batches,
		Groups: schedule.Recovered{Dir: t.folder.Dir, Log: t.past.Log, Ended: t.past.Ended, Tasks: t.past.Tasks},
	}
}

// newObjective makes what the job learns by, with the model open: from conversations, or from rollouts of the tasks that are dealt.
func (t *run) newObjective(ctx context.Context, learn *data.SFT, conversations int, held *data.Tasks) (objective.Objective, error) {
	if learn != nil {
		train, eval, err := objective.NewLayout(t.policy, &t.rollout).SFT(learn)
		return objective.NewSFT(t.job, train, eval, conversations), err
	}
	o := objective.NewRL(t.job, t.algorithm, &t.rollout, t.dealer, held)
	if t.job.Distill == nil {
		return o, nil
	}
	teacher, err := objective.OpenTeacher(ctx, t.job, t.policy, t.worker, t.notes.know)
	if err != nil {
		return nil, err
	}
	if note := objective.LimitToTeacher(teacher, &t.rollout); note != "" {
		t.notes.know(note)
	}
	return objective.NewDistillation(o, teacher, t.notes.note), nil
}

// release lets the other ranks end: with the run, or with what went wrong here.
func (t *run) release(err error) {
	if t.trainer != nil && (err == nil || errors.Is(err, ErrInterrupted)) {
		if t.trainer.Release() == nil {
			return
		}
	}
	if err != nil {
		t.ranks.Fail(err)
	}
}

func (t *run) close() error {
	var errs []error
	if t.trainer != nil {
		errs = append(errs, t.trainer.Close())
	}
	if t.objective != nil {
		errs = append(errs, t.objective.Close())
	}
	errs = append(errs, t.ranks.Leave(), t.session.Close())
	errs = append(errs, t.folder.Close())
	return errors.Join(errs...)
}

func (t *run) loop(ctx context.Context) error {
	j := t.job
	t.say("%s: %d steps of %s, model %s, run folder %s", j.Name, j.Trainer.Steps, t.objective, modelName(j), t.folder.Dir)
	for _, note := range t.notes.early {
		t.say("note: %s", note)
	}
	t.sayNotes()
	t.started = time.Now()
	err := t.steps(ctx)
	t.objective.Stop()
	if left := leftOver(t.rollout.Tools); left != "" {
		t.notes.note(left)
	}
	t.sayNotes()
	t.state.Seconds += time.Since(t.started).Seconds()
	t.started = time.Time{}
	if err == nil {
		return t.save()
	}
	switch caught := (*panics.Error)(nil); {
	case ctx.Err() == nil && errors.As(err, &caught): // code that the program brought, not the run's
		return fmt.Errorf("%w\norchestrator: what the run recorded is kept: correct the code that panicked, then the run can go on with --resume", err)
	case ctx.Err() == nil:
		return err
	case t.halfway: // saved now, the step's update would be done twice
		return fmt.Errorf("orchestrator: interrupted while step %d was updated, which failed, so nothing is saved; --resume goes on at the last checkpoint and the log: %w", t.state.Step, err)
	}
	if err := t.save(); err != nil {
		return fmt.Errorf("orchestrator: interrupted, and the state could not be saved: %w", err)
	}
	t.say("interrupted after step %d; saved in %s", t.state.Step, checkpoint.LastOf(t.folder.Dir))
	return ErrInterrupted
}

// sayNotes tells what was noted since the last call.
func (t *run) sayNotes() {
	for _, note := range t.notes.news() {
		t.say("note: %s", note)
	}
}

func modelName(j *job.Job) string {
	if j.Model.Path != "" {
		return j.Model.Path
	}
	return "from scratch"
}

func (t *run) steps(ctx context.Context) error {
	j := t.job
	if err := t.evaluate(ctx, "before", false); err != nil {
		return err
	}
	if err := t.evaluateStep(ctx); err != nil { // an interruption may have cut it off
		return err
	}
	for t.state.Step < j.Trainer.Steps && !t.stalled() {
		if err := t.step(ctx); err != nil {
			return err
		}
		if err := t.evaluateStep(ctx); err != nil {
			return err
		}
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

// evaluateStep runs the evaluation that eval.every wants at this step, if any. The end of a run has its own.
func (t *run) evaluateStep(ctx context.Context) error {
	n, step := t.job.Eval.Every, t.state.Step
	if n == 0 || step == 0 || step%n != 0 || step >= t.job.Trainer.Steps || t.state.Evaluations.Has("after", step) || t.past.Evaluated("after", step) {
		return nil
	}
	return t.evaluate(ctx, fmt.Sprintf("step-%d", step), false)
}

// evaluate runs an evaluation once at its step in the life of a run. A finished run that goes on to more steps evaluates
// its end again.
func (t *run) evaluate(ctx context.Context, name string, toolsOff bool) error {
	if !t.objective.Evaluates() {
		return nil
	}
	if t.state.Evaluations.Has(name, t.state.Step) {
		return t.keepBest()
	}
	e, err := t.objective.Evaluate(ctx, name, t.state.Step, toolsOff)
	if err != nil {
		return err
	}
	if err := t.folder.DB.AddEvaluation(ctx, e.Name, e.Step, e); err != nil {
		return err
	}
	t.state.Evaluations.Put(e)
	for _, line := range e.Lines() {
		t.say("%s", line)
	}
	if err := t.folder.Log(map[string]any{"step": e.Step, "eval": e}); err != nil {
		return err
	}
	return t.keepBest()
}
