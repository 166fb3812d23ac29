package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/weights"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// run is what a training run holds open, from its first check to its end: what it computes with, learns by and writes to, and the state that
// its steps go on from. It opens and closes; its steps are those of training.
type run struct {
	options   Options
	session   *session.Session
	checked   *session.Checked // the job, before the folder was opened; nil in a replay
	folder    *runfolder.Folder
	algorithm *algorithms.Algorithm
	trainer   learner
	ranks     *processes.Group
	dealer    *data.Dealer // nil in supervised fine-tuning
	objective objective.Objective
	state     checkpoint.State
	recovered recovery.Recovered
	board     *resourceBoard      // nil before the folder is open
	now       *nowBoard           // nil before the folder is open
	requests  *runfolder.Requests // what others ask of the run; nil before now, without which nobody can ask
	goesOn    bool                // its job was taken: what ends it now ends the run
	activity  *activity
	replayed  string        // the folder of the run that this one does again, without its evaluations; "": it is a run of its own
	recorded  *store.Reader // of that run; nil: none
}

// jobData is what a job's data files hold.
type jobData struct {
	learn         *data.SFT    // of supervised fine-tuning; nil otherwise
	conversations int          // of learn, over the epochs
	dealer        *data.Dealer // of tasks; nil in supervised fine-tuning
	held          *data.Tasks  // that are evaluated; nil: none
	files         []data.File  // that a resumed run must find unchanged
}

// readData reads the data of a job that trains, and without held none that are held out.
func readData(j *job.Job, own data.Own, held bool) (m jobData, err error) {
	if j.SFT != nil {
		if m.learn, m.conversations, err = objective.ReadSFT(j); err != nil {
			return m, err
		}
		m.files = m.learn.Files
		return m, nil
	}
	if !held {
		train, deal, err := data.ReadTraining(j, own)
		return jobData{dealer: deal, files: train.Files("train")}, err
	}
	train, eval, deal, err := data.Read(j, own)
	if err != nil {
		return m, err
	}
	return jobData{dealer: deal, held: eval, files: append(train.Files("train"), eval.Files("eval")...)}, nil
}

// prepare reads and opens everything else that can be wrong before the first rollout. The session is equipped already.
func (r *run) prepare(ctx context.Context, j *job.Job) error {
	m, err := readData(j, r.session.World.Tasks(), r.replayed == "")
	if err != nil {
		return err
	}
	r.dealer = m.dealer
	if err := r.claim(); err != nil {
		return err
	}
	if err := r.ranks.Join(ctx, r.options.launch()); err != nil {
		return err
	}
	from, err := r.loadState(m.files)
	if err != nil {
		return err
	}
	if err := r.stepsLeft(j); err != nil {
		return err
	}
	if j, err = objective.WithSteps(j, m.conversations, objective.At{Step: r.state.Step, Dealt: r.state.Dealt}); err != nil {
		return err
	}
	r.session.Job = j
	if err := r.open(ctx, from); err != nil {
		return err
	}
	if r.objective, err = r.newObjective(ctx, m); err != nil {
		return err
	}
	if err := r.folder.Open(j, r.session.Notes.Know); err != nil { // not earlier: a run that could not begin leaves none behind
		return err
	}
	if err := r.begunWith(ctx, from); err != nil {
		return err
	}
	if err := r.sameAdapter(from); err != nil {
		return err
	}
	r.session.Logs.Open(filepath.Join(r.folder.Dir, "logs"))
	if note := r.checked.UnknownNote(); note != "" {
		r.session.Notes.Know(note)
	}
	r.board = showResources(r.folder, func() []runfolder.Pool { return poolsOf(r.session) }, r.session.Notes.Note)
	r.activity.begin(opening, "opening the trainer")
	r.requests = runfolder.NewRequests(r.folder.Dir)
	r.now = showNow(ctx, r.folder, r.activity, func(n *runfolder.Now) {
		n.Engine, n.Groups = loadOf(r.session.Weights.Engine()), r.objective.Groups()
	}, r.session.Notes.Note)
	r.session.Sampler.Told = told(r.options.Event)
	r.session.Sampler.Record = r.folder.DB.AddTurn
	r.session.BeginAnew(r.folder.DB.Restart)
	if err := r.session.Guests.Keep(r.folder.Dir, r.session.Sampler.External); err != nil {
		return err
	}
	if err := r.openTrainer(ctx, from); err != nil {
		return err
	}
	if err := r.recover(ctx); err != nil {
		return err
	}
	if err := r.folder.GoOn(j, r.state.Step, r.session.Notes.Know); err != nil { // not earlier: a run that could not go on is as it was
		return err
	}
	r.goesOn = true
	r.objective.Prepare(r.found())
	return nil
}

// claim makes sure that the run folder is this run's, and finds the run's name.
func (r *run) claim() error {
	if err := r.folder.Check(); err != nil {
		return err
	}
	if r.options.Resume { // a new run's folder is not there yet
		if err := r.folder.Lock(r.console().warn); err != nil {
			return err
		}
	}
	if err := r.folder.Identify(weights.NewRun(r.session.Job.Name)); err != nil {
		return err
	}
	r.session.Weights.Run = r.folder.Name
	return nil
}

// stepsLeft refuses to go on with a run that did more steps than the job has: nothing would be done, and the run's job would name settings that
// trained nothing.
func (r *run) stepsLeft(j *job.Job) error {
	if !r.options.Resume || j.SFT != nil && j.SFT.Epochs > 0 {
		return nil
	}
	done, _, err := runfolder.Steps(r.folder.Dir)
	if err != nil || done <= j.Trainer.Steps { // what cannot be read is told of where it is opened
		return nil
	}
	return j.Fail("trainer.steps", "%d, but the run in %s has %d steps already; give more to go on", j.Trainer.Steps, r.folder.Dir, done)
}

// loadState loads the state of the last checkpoint of a run that is resumed, and returns the folder of that checkpoint; "": there is none.
func (r *run) loadState(files []data.File) (from string, err error) {
	if r.options.Resume {
		if err := checkpoint.PutBack(r.folder.Dir); err != nil {
			return "", err
		}
		if from, err = r.state.Load(r.folder.Dir); err != nil {
			return "", err
		}
	}
	if r.state.Data, err = data.SameFiles(cmp.Or(r.replayed, r.folder.Dir), r.state.Data, files); err != nil {
		return "", err
	}
	return from, nil
}

// open opens the model, the engine and what samples, with the weights of a checkpoint; "": the job's own.
func (r *run) open(ctx context.Context, from string) error {
	j := r.session.Job
	if j.Model.LoRA.On() { // the job's own base; the trainer's folder holds the adapter
		from = ""
	}
	if err := r.session.Open(ctx, from); err != nil {
		return err
	}
	if err := r.session.Weights.Trainable(); err != nil {
		return err
	}
	r.session.World.PayTurns(r.algorithm, r.session.Sampler.World)
	if err := r.ranks.Limit(ctx, r.session.Worker); err != nil {
		return err
	}
	if o, most := r.algorithm.Overlong, r.session.Sampler.MaxTotal; o.Buffer > 0 && o.Buffer >= most {
		return j.Fail("algorithm.overlong.buffer", "%d tokens are not less than the %d that the model takes", o.Buffer, most)
	}
	return nil
}

// newObjective makes what the job learns by, with the model open: from conversations, or from rollouts of the tasks that are dealt.
func (r *run) newObjective(ctx context.Context, m jobData) (objective.Objective, error) {
	s := r.session
	if m.learn != nil {
		train, eval, err := objective.NewLayout(s.Policy, &s.Sampler).SFT(m.learn)
		if err != nil {
			return nil, err
		}
		if err := r.room(ctx, longestOf(train)); err != nil {
			return nil, err
		}
		if m.learn.Trajectories == nil {
			if note := session.UnknownLearned(s.Policy, train); note != "" {
				s.Notes.Know(note)
			}
		}
		return objective.NewSFT(s.Job, train, eval, m.conversations), nil
	}
	o := objective.NewRL(s.Job, r.algorithm, &s.Sampler, r.dealer, m.held)
	if s.Job.Distill == nil {
		return o, nil
	}
	teacher, err := objective.OpenTeacher(ctx, s.Job, s.Policy, s.Worker, s.Notes.Know)
	if err != nil {
		return nil, err
	}
	if note := objective.LimitToTeacher(teacher, &s.Sampler); note != "" {
		s.Notes.Know(note)
	}
	return objective.NewDistillation(o, teacher, s.Notes.Note), nil
}

// room refuses a run that exceeds the memory that there is, and notes one that may. Of supervised fine-tuning only who laid the conversations out
// knows whether it may; longest is 0 before that.
func (r *run) room(ctx context.Context, longest int) error {
	note := r.session.Notes.Know
	if r.session.Job.SFT != nil && longest == 0 {
		note = func(string) {}
	}
	return room(ctx, r.session.Job, r.algorithm, r.ranks.Config.World, max(r.options.Ranks, 1), longest, note)
}

// openTrainer makes the trainer, with the optimizer of a checkpoint where there is one, and gives the engine its first weights.
func (r *run) openTrainer(ctx context.Context, from string) error {
	made, err := r.session.Trainer(r.algorithm, r.ranks, &r.state.Version)
	if err != nil {
		return err
	}
	r.trainer, r.session.Weights.Lender = made, made
	if from != "" {
		err := r.trainer.Load(filepath.Join(from, checkpoint.TrainerFolder))
		if refused := new(trainer.SettingError); errors.As(err, &refused) {
			return r.session.Job.Fail(refused.Setting, "%v", refused)
		} else if err != nil {
			return err
		}
	}
	return r.session.Weights.Begin(ctx, r.state.Version)
}

// recover reads the log of the run, from which its steps then go on: what was recorded is neither sampled nor evaluated
// again.
func (r *run) recover(ctx context.Context) error {
	db, s := r.folder.DB, r.session
	log, err := db.Recover(ctx, r.state.Step)
	if err != nil {
		return err
	}
	if log.Events == 0 { // supervised fine-tuning, or a program that kept no log
		if err := db.Truncate(ctx, r.state.Step); err != nil {
			return err
		}
		r.state.Evaluations = r.state.Evaluations.UpTo(r.state.Step)
	}
	if err := r.deal(ctx, log); err != nil {
		return err
	}
	if r.recovered, err = recovery.Read(log, r.folder, &r.state, r.dealer, s.Sampler.Tools.KeepsState()); err != nil {
		return err
	}
	if err := r.recovered.TakeTemperature(ctx, r.folder, s.Job, r.state.Step); err != nil {
		return err
	}
	if !r.recovered.Any(&r.state) {
		if err := db.Begin(ctx, time.Now(), rand.Text()); err != nil {
			return err
		}
	}
	older, note, err := recovery.TakeRules(ctx, db, r.recovered.Any(&r.state))
	if err != nil {
		return err
	}
	if note != "" {
		s.Notes.Know(note)
	}
	if older {
		s.Sampler.Restart = recovery.Restart(db, s.Notes.Note)
	}
	if note, err = r.recovered.MendMetrics(r.folder, &r.state); err != nil {
		return err
	}
	if note != "" {
		s.Notes.Know(note)
	}
	if r.options.Resume {
		s.Notes.Know(r.recovered.Summary(r.state.Step))
	}
	s.Sampler.Recovered = r.recovered.Trajectory
	s.Sampler.External.KnowEnded(s.Sampler.RunName, slices.Collect(maps.Values(r.recovered.Ended))...)
	s.Sampler.AwaitAgents(r.recovered.Open()...)
	return nil
}

// weightsFact is the weights of the run's sources, each from the position on from which they hold. A store without it has those of the job.
const weightsFact = "weights of sources"

// deal has the dealer go on where the log ends: each source with what the weights of before left of its epoch, a curriculum with what it knew. A replay
// deals by the weights of the run that it does again, from their positions on.
func (r *run) deal(ctx context.Context, log *store.Recovery) error {
	if r.dealer == nil {
		return nil
	}
	db, dealt := r.folder.DB, 0
	from := db.Reader
	if len(log.Dealt) > 0 {
		dealt = log.Dealt[0]
	}
	if r.recorded != nil {
		from, dealt = r.recorded, math.MaxInt
	}
	fact, err := from.Fact(weightsFact)
	if err != nil {
		return err
	}
	var was []data.Weights
	if fact != "" {
		if err := json.Unmarshal([]byte(fact), &was); err != nil {
			return fmt.Errorf("orchestrator: %s: the fact %s is damaged: %w", store.File, weightsFact, err)
		}
	}
	if now := r.dealer.Reweigh(was, dealt); now != nil {
		text, err := json.Marshal(now)
		if err != nil {
			return err
		}
		if err := db.SetFact(ctx, weightsFact, string(text)); err != nil {
			return err
		}
	}
	r.state.Curriculum = r.dealer.Resume(r.state.Curriculum, r.state.Step, r.state.Dealt)
	return nil
}

// found is what the objective begins with.
func (r *run) found() objective.Found {
	return objective.Found{
		DB: r.folder.DB, Scorer: r.trainer, Batches: r.recovered.Batches,
		Groups: schedule.Recovered{Dir: r.folder.Dir, Log: r.recovered.Log, Ended: r.recovered.Ended, Tasks: r.recovered.Tasks},
	}
}

// decode is the text of ids, special tokens included where the policy is open.
func (r *run) decode(ids []int32) string {
	if r.session.Policy == nil {
		return r.session.Sampler.Decode(ids)
	}
	return r.session.Policy.Tokenizer.Decode(ids, false)
}

// training is the steps of the run, which is prepared.
func (r *run) training() *training {
	j, c := r.session.Job, r.console()
	return &training{
		findings: report.Findings{Job: j, Decode: r.decode},
		activity: r.activity,
		session:  r.session, algorithm: r.algorithm, trainer: r.trainer, objective: r.objective, state: &r.state, dir: r.folder.Dir, console: c, requests: r.requests,
		recorder: recorder{job: j, folder: r.folder, recovered: &r.recovered, state: &r.state, console: c},
		checkpoints: checkpoints{
			folder: checkpoint.Folder{Dir: r.folder.Checkpoints(), Keep: j.Checkpoint.Keep}, job: j, policy: r.session.Policy, trainer: r.trainer,
		},
	}
}

// tellSilentRules says at the end of the run which rules of agent.roles named no call in it.
func (r *run) tellSilentRules(ctx context.Context) {
	var before func() (map[trajectory.Role]bool, error)
	if r.options.Resume {
		before = func() (map[trajectory.Role]bool, error) {
			named := map[trajectory.Role]bool{}
			return named, r.folder.DB.Reader.EachNewest(context.WithoutCancel(ctx), func(_ string, t *trajectory.Trajectory, damaged error) error {
				if damaged != nil {
					return damaged
				}
				for _, turn := range t.Turns {
					if turn.Incoming != nil {
						named[turn.Incoming.Role] = true
					}
				}
				return nil
			})
		}
	}
	note, err := r.session.Guests.SilentRules(before)
	if err != nil {
		note = "whether each rule of agent.roles named a call is not known: " + err.Error()
	}
	if note != "" {
		r.console().warn(note)
	}
}

// console is where the run tells what it does.
func (r *run) console() console { return console{r.options.Out, &r.session.Notes, r.options.Event} }

// release lets the other ranks end: with the run, or with what went wrong here.
func (r *run) release(err error) {
	if r.trainer != nil && (err == nil || errors.Is(err, ErrInterrupted)) {
		if r.trainer.Release() == nil {
			return
		}
	}
	if err != nil {
		r.ranks.Fail(err)
	}
}

// close closes what is open, of a run that ended so.
func (r *run) close(ended error) error {
	var errs []error
	if r.trainer != nil {
		errs = append(errs, r.trainer.Close())
	}
	if r.objective != nil {
		errs = append(errs, r.objective.Close())
	}
	r.board.stop()
	switch {
	case ended == nil:
		r.now.stop(runfolder.EndedDone, nil)
	case errors.Is(ended, ErrInterrupted):
		r.now.stop(runfolder.EndedInterrupted, nil)
	case !r.goesOn && errors.As(ended, new(*job.Error)): // the job was refused, and the run is what it was
		r.now.restore(ended)
	default:
		r.now.stop(runfolder.EndedFailed, ended)
	}
	errs = append(errs, r.ranks.Leave(), r.session.Close())
	r.console().news()
	errs = append(errs, r.folder.Close())
	return errors.Join(errs...)
}
