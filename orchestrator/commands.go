package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// Registries hold what job files name.
type Registries = session.Registries

// ErrStopped says that a command which saves nothing to go on from was stopped from outside.
var ErrStopped = errors.New("orchestrator: interrupted")

// stopped is ErrStopped and how far a command came, in place of its error, where its context ended.
func stopped(ctx context.Context, err error, format string, args ...any) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w; %s", ErrStopped, fmt.Sprintf(format, args...))
}

// Examine says how Look looks at a job.
type Examine struct {
	For  string // train, rollout or eval: the command that the job must be good for; "" is train
	Run  bool   // start the programs that the job names, import its Python files and ask its services
	Read error  // what was wrong with the file already (job.Draft)
}

// Examination is what a look at a job showed.
type Examination struct {
	NotRun []string        // was left out, because it runs or asks what the job names
	Notes  []string        // that the user should know
	Prompt *session.Prompt // of the first task; nil: it is known when a rollout begins
	Learn  *trajectory.Sample
	Text   *policy.Policy // the model without its weights; nil: it could not be opened
}

// Look says what a command would refuse of a job before its first step, all at once, without reading weights.
func Look(ctx context.Context, j *job.Job, r Registries, how Examine) (x Examination, err error) {
	s := session.NewLook(j)
	if how.Run {
		s = session.New(j)
	}
	defer s.Close()
	checked, err := session.Check(ctx, s, r)
	algorithm, _ := job.Algorithm(j, r.Algorithms) // its error is among those of Check
	wrong := []error{how.Read, err, fit(j, algorithm, how.For), checked.Text(), checked.Tasks()}
	learned, err := lookAtLearned(s, checked)
	if wrong = append(wrong, err); len(learned) > 0 && len(learned[0].Samples) > 0 {
		x.Learn = learned[0].Samples[0]
	}
	if (how.For == "" || how.For == "train") && algorithm != nil {
		wrong = append(wrong, shareable(j), room(ctx, j, algorithm, processes.PerBatch(j), 0, longestOf(learned), s.Notes.Know))
	}
	if how.Run && (how.For == "" || how.For == "train") {
		wrong = append(wrong, s.Reach(ctx, false), session.AskServers(ctx, j))
	}
	notRun := checked.NotRun()
	if servers := session.Servers(j); !how.Run && len(servers) > 0 {
		notRun = append(notRun, "the servers "+strings.Join(servers, ", ")+", which are not asked")
	}
	x.NotRun, x.Prompt, x.Text = notRun, checked.Example(), s.Policy
	x.Notes = append(s.Notes.Early(), s.Notes.News()...)
	return x, j.Stages(wrong...)
}

// lookAtLearned lays out what a job of supervised fine-tuning learns, as far as a session that was looked at can; nil: nothing of the kind.
func lookAtLearned(s *session.Session, checked *session.Checked) ([]*trajectory.Trajectory, error) {
	if s.Policy == nil || checked.Learn == nil || s.Sampler.MaxTotal == 0 {
		return nil, nil
	}
	train, _, err := objective.NewLayout(s.Policy, &s.Sampler).SFT(checked.Learn)
	return train, err
}

// fit refuses a job that the command would refuse for its settings; algorithm is nil where it has none.
func fit(j *job.Job, algorithm *algorithms.Algorithm, command string) error {
	var wrong []error
	switch command {
	case "eval":
		wrong = append(wrong, job.Evaluable(j))
	case "rollout":
		wrong = append(wrong, job.Samplable(j))
	default:
		wrong = append(wrong, j.TrainingErrors())
		if algorithm != nil {
			wrong = append(wrong, job.Trainable(j, algorithm))
		}
	}
	if j.Deterministic && j.Engine.Kind != "local" && engines.BuiltIn(j.Engine.Kind) {
		wrong = append(wrong, j.Fail("deterministic", "true needs an engine whose results do not depend on what runs beside a request; use engine: {kind: local}"))
	}
	return j.Collect(wrong...)
}

// Evaluate evaluates the job's held-out tasks with the model at path; "" is the job's own. event is told of the trajectories that ended and what the user
// should know, and is safe for concurrent use; nil: nobody is told.
func Evaluate(ctx context.Context, j *job.Job, path string, toolsOff bool, r Registries, event func(Event)) (e report.Evaluation, err error) {
	if err := job.Evaluable(j); err != nil {
		return e, err
	}
	s := session.New(j)
	defer func() { err = errors.Join(err, s.Close()) }()
	if event != nil {
		s.Notes.Tell(func(line string) { event(Event{Kind: Note, Text: line}) })
	}
	var ended atomic.Int64
	defer func() {
		err = stopped(ctx, err, "trajectories that had ended: %d; an evaluation that is cut off has no result", ended.Load())
	}()
	if err := s.Equip(ctx, r); err != nil {
		return e, err
	}
	_, tasks, _, err := data.Read(j, s.World.Tasks())
	if err != nil {
		return e, err
	}
	if err := s.Start(ctx, path, toolsOff); err != nil {
		return e, err
	}
	s.Sampler.AwaitAgents() // none goes on from before
	sampler := s.Sampler
	sampler.ToolsOff = toolsOff || j.Control.ToolsOff
	tell := told(event)
	sampler.Told = func(done, of int) {
		if ctx.Err() == nil { // else it was cut off
			ended.Add(1)
		}
		if tell != nil {
			tell(done, of)
		}
	}
	e, err = objective.Evaluate(ctx, sampler, nil, "eval", 0, tasks.Tasks, j)
	s.NoteLeftOver()
	if err != nil {
		return e, err
	}
	if note, _ := s.Guests.SilentRules(nil); note != "" {
		s.Notes.Note(note)
	}
	return e, nil
}

// told makes events of what a sampler tells.
func told(event func(Event)) func(done, of int) {
	if event == nil {
		return nil
	}
	return func(done, of int) { event(Event{Kind: Rollouts, Done: done, Of: of}) }
}

// Sample rolls out the tasks of the first steps of a job and hands each trajectory over as it ends, one at a time. Nothing is trained. note is told what
// the user should know, one at a time, also beside f.
func Sample(ctx context.Context, j *job.Job, path string, steps int, r Registries, note func(string), f func(*trajectory.Trajectory) error) (err error) {
	if err := job.Samplable(j); err != nil {
		return err
	}
	s := session.New(j)
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Notes.Tell(note)
	ended := 0 // f is called for one at a time
	defer func() {
		err = stopped(ctx, err, "trajectories that had ended: %d; those that were cut off are written with stop_reason cancelled", ended)
	}()
	if err := s.Equip(ctx, r); err != nil {
		return err
	}
	_, _, deal, err := data.Read(j, s.World.Tasks())
	if err != nil {
		return err
	}
	if err := s.Start(ctx, path, false); err != nil {
		return err
	}
	s.Sampler.AwaitAgents() // none goes on from before
	defer s.NoteLeftOver()
	return sample(ctx, &s.Sampler, deal, j.Rollout, steps, func(t *trajectory.Trajectory) error {
		if ctx.Err() == nil {
			ended++
		}
		return f(t)
	})
}

// sample is Sample with what it needs. More failures in a step than the limits allow are an error, once the step's trajectories were handed over.
func sample(ctx context.Context, r *rollout.Sampler, deal *data.Dealer, limits job.Rollout, steps int, f func(*trajectory.Trajectory) error) error {
	var one sync.Mutex
	var failed error
	hand := func(t *trajectory.Trajectory) error {
		one.Lock()
		defer one.Unlock()
		if failed == nil {
			failed = rollout.Fatal(t)
		}
		if failed == nil { // nothing is handed over after an error
			failed = f(t)
		}
		return nil
	}
	for step := range steps {
		tasks := deal.Tasks(step, limits.Groups)
		var groups []trajectory.Group
		if r.Trees == nil {
			groups, _ = r.Groups(ctx, "rollout", step, tasks, limits.GroupSize, hand)
		} else {
			groups = r.Forest(ctx, "rollout", step, tasks, limits.GroupSize, hand)
		}
		if err := errors.Join(failed, ctx.Err()); err != nil {
			return err
		}
		if err := rollout.TooManyFailed(limits, fmt.Sprintf("step %d", step+1), groups); err != nil {
			return err
		}
	}
	return nil
}
