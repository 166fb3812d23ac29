package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
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

// Summary is summary.json.
type Summary struct {
	Job             string             `json:"job"`
	Steps           int                `json:"steps"`
	Seconds         float64            `json:"seconds"`        // from the first rollout to the last evaluation
	Reward          map[string]float64 `json:"reward"`         // mean of the first and of the last three steps
	Loss            map[string]float64 `json:"loss,omitempty"` // supervised fine-tuning: mean of the first and of the last three steps, eval_before and eval_after
	Eval            map[string]float64 `json:"eval"`           // mean reward before and after; tool_off: share of right answers without tools
	TokensPerSecond map[string]float64 `json:"tokens_per_second"`
	Trajectories    map[string]int     `json:"trajectories"`
	MismatchMax     float64            `json:"mismatch_max"`      // largest |trainer's - engine's| logprob of a sampled token
	Skipped         int                `json:"skipped,omitempty"` // steps whose update was passed over, see trainer.on_nonfinite
	Errors          map[string]int     `json:"errors,omitempty"`  // by origin: trajectories that failed, tool calls that broke
	Best            *Best              `json:"best,omitempty"`    // evaluation; nil without one
	Stopped         string             `json:"stopped,omitempty"` // why the run ended before trainer.steps
}

// learner is what a run needs of policy.Trainer.
type learner interface {
	Step(ctx context.Context, b trainer.Batch) (trainer.Metrics, error)
	Score(ctx context.Context, samples []*trajectory.Sample, temperature float64) ([]trainer.SampleScores, error)
	Load(dir string) error
	Save(dir string) error
	Release() error
	Close() error
}

var _ learner = (*trainer.Trainer)(nil)

// run is one training run.
type run struct {
	*session
	options     Options
	dir         string
	folder      string // dir as an absolute path, see identify
	algorithm   *algorithms.Algorithm
	unlock      func() // the run folder; nil: it is not locked
	db          *store.Store
	metrics     *os.File
	trainer     learner
	ranks       *ranks
	sampler     *data.Dealer
	feed        *schedule.Feed // of rollouts; nil before the first step
	sft         *supervised    // nil but in supervised fine-tuning
	eval        *data.Tasks
	state       state
	past        past
	replay      *replaying // of a run's recorded batches; nil: the run samples its own
	started     time.Time  // of this process; zero outside the loop
	resumedAt   int        // steps done before this process
	halfway     bool       // the weights are those of a step whose end is not recorded: no state to save
	stepSeconds float64    // spent on steps by this process
}

// Train runs a job to its end, or to an interruption: then it saves what it has and returns ErrInterrupted.
func Train(ctx context.Context, j *job.Job, r Registries, o Options) (sum Summary, err error) {
	if err := j.TrainingErrors(); err != nil {
		return sum, err
	}
	group, err := ranksOf(j, o)
	if err != nil {
		return sum, err
	}
	if group.config.Rank > 0 { // it samples nothing: data, tools and rewards are rank 0's
		algorithm, err := Algorithm(j, r)
		if err != nil {
			return sum, err
		}
		return sum, follow(ctx, j, algorithm, group, o)
	}
	t := &run{session: newSession(j), options: o, dir: j.Output, ranks: group}
	defer func() {
		t.release(err)
		err = errors.Join(err, t.close())
	}()
	if group.launched { // the others wait already, for an index that is built or for what is wrong here
		err = group.join(ctx, o)
	}
	if err == nil {
		t.algorithm, err = t.check(ctx, r)
	}
	if err == nil {
		err = Trainable(j, t.algorithm)
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

func (t *run) say(format string, args ...any) { fmt.Fprintf(t.options.Out, format+"\n", args...) }

// prepare reads everything else that can be wrong before the first rollout. The session is equipped already.
func (t *run) prepare(ctx context.Context, j *job.Job) (err error) {
	var learn *data.Material
	var files []data.File
	if j.SFT != nil {
		if j, learn, err = t.prepareSFT(j); err != nil {
			return err
		}
		files = []data.File{{Name: "train", Path: learn.Path, Hash: learn.Hash}}
	} else {
		train, eval, deal, err := data.Read(j)
		if err != nil {
			return err
		}
		t.eval, t.sampler, files = eval, deal, train.Files("train")
	}
	if err := t.checkFolder(); err != nil {
		return err
	}
	if t.options.Resume { // a new run's folder is not there yet
		if err := t.lock(); err != nil {
			return err
		}
	}
	if err := t.identify(); err != nil {
		return err
	}
	if err := t.ranks.join(ctx, t.options); err != nil {
		return err
	}
	from := ""
	if t.options.Resume {
		if from, err = t.state.load(t.dir); err != nil {
			return err
		}
	}
	if t.state.Data, err = data.SameFiles(t.dir, t.state.Data, files); err != nil {
		return err
	}
	t.state.Curriculum = t.sampler.Resume(t.state.Curriculum, t.state.Step, t.state.Dealt)
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
	if err := t.ranks.limit(ctx, t.worker); err != nil {
		return err
	}
	if learn != nil {
		if t.sft.train, t.sft.eval, err = t.lessons(learn); err != nil {
			return err
		}
	}
	if o := t.algorithm.Overlong; o.Buffer > 0 && o.Buffer >= t.rollout.MaxTotal {
		return j.Fail("algorithm.overlong.buffer", "%d tokens are not less than the %d that the model takes", o.Buffer, t.rollout.MaxTotal)
	}
	if j.Distill != nil {
		if t.teacher, err = t.openTeacher(ctx); err != nil {
			return err
		}
		t.limitToTeacher()
	}
	if err := t.makeFolder(j); err != nil { // not earlier: a run that could not begin leaves none behind
		return err
	}
	made, err := t.session.trainer(t.algorithm, &t.state.Version)
	if err != nil {
		return err
	}
	t.trainer = made
	if from != "" {
		if err := t.trainer.Load(filepath.Join(from, trainerFolder)); err != nil {
			return err
		}
	}
	if err := t.weights.Begin(ctx, t.state.Version); err != nil {
		return err
	}
	return t.recover(ctx)
}

// release lets the other ranks end: with the run, or with what went wrong here.
func (t *run) release(err error) {
	if t.trainer != nil && (err == nil || errors.Is(err, ErrInterrupted)) {
		if t.trainer.Release() == nil {
			return
		}
	}
	if err != nil {
		t.ranks.fail(err)
	}
}

func (t *run) close() error {
	var errs []error
	if t.trainer != nil {
		errs = append(errs, t.trainer.Close())
	}
	errs = append(errs, t.ranks.leave(), t.session.Close())
	if t.db != nil {
		errs = append(errs, t.db.Close())
	}
	if t.metrics != nil {
		errs = append(errs, t.metrics.Close())
	}
	if t.unlock != nil {
		t.unlock()
	}
	return errors.Join(errs...)
}

func (t *run) loop(ctx context.Context) error {
	j := t.job
	if t.sft != nil {
		t.say("%s: %d steps of %d conversations out of %d, model %s, run folder %s", j.Name, j.Trainer.Steps, j.SFT.Batch, len(t.sft.train), modelName(j), t.dir)
	} else {
		t.say("%s: %d steps of %d groups x %d trajectories, model %s, run folder %s", j.Name, j.Trainer.Steps, j.Rollout.Groups, j.Rollout.GroupSize, modelName(j), t.dir)
	}
	for _, note := range t.notes {
		t.say("note: %s", note)
	}
	t.sayNotes()
	t.started, t.resumedAt = time.Now(), t.state.Step
	err := t.steps(ctx)
	if t.feed != nil {
		t.feed.Close()
	}
	if left := leftOver(t.rollout.Tools); left != "" {
		t.note(left)
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
	t.say("interrupted after step %d; saved in %s", t.state.Step, filepath.Join(t.dir, "checkpoints", "last"))
	return ErrInterrupted
}

// sayNotes tells what was noted since the last call.
func (t *run) sayNotes() {
	for _, note := range t.lateNotes() {
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
		step := t.step
		if t.sft != nil {
			step = t.learn
		}
		if err := step(ctx); err != nil {
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
	if n == 0 || step == 0 || step%n != 0 || step >= t.job.Trainer.Steps || t.state.evaluated("after", step) || t.past.evals[evaluationKey(Evaluation{Name: "after", Step: step})] {
		return nil
	}
	return t.evaluate(ctx, fmt.Sprintf("step-%d", step), false)
}

// evaluate runs an evaluation once at its step in the life of a run. A finished run that goes on to more steps evaluates
// its end again.
func (t *run) evaluate(ctx context.Context, name string, toolsOff bool) error {
	if t.eval == nil && (t.sft == nil || len(t.sft.eval) == 0) {
		return nil
	}
	if t.state.evaluated(name, t.state.Step) {
		return t.keepBest()
	}
	var e Evaluation
	var err error
	if t.sft != nil {
		e, err = t.evaluateLoss(ctx, name)
	} else {
		r := t.rollout
		r.ToolsOff = toolsOff || t.job.Control.ToolsOff
		e, err = evaluate(ctx, r, t.db, name, t.state.Step, t.eval.Tasks, t.job)
		if err == nil && t.teacher != nil {
			err = t.evaluateKL(ctx, &e)
		}
	}
	if err != nil {
		return err
	}
	if err := t.db.AddEvaluation(ctx, e.Name, e.Step, e); err != nil {
		return err
	}
	t.state.evaluation(e)
	t.sayEvaluation(e)
	if err := t.log(map[string]any{"step": e.Step, "eval": e}); err != nil {
		return err
	}
	return t.keepBest()
}

func (t *run) log(line map[string]any) error {
	data, err := json.Marshal(line)
	if err == nil {
		_, err = t.metrics.Write(append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	return nil
}
