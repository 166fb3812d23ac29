package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/agentfly/agentfly/export"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
)

// ErrInterrupted says that the run was stopped from outside, saved itself, and can be resumed.
var ErrInterrupted = errors.New("orchestrator: the run was interrupted and saved; continue it with --resume")

// Options of a run.
type Options struct {
	Resume    bool
	Overwrite bool        // a run that the folder holds is deleted when this one begins
	Resumes   string      // the command line that goes on with the run when it was interrupted, for the user; "": none is told
	Out       io.Writer   // progress, one line at a time
	Event     func(Event) // gets what the lines say, in fields, one at a time, and nothing after Train; nil: nobody does
	Ranks     int         // processes that train, which this one starts; torchrun's variables come before it. 0 and 1: one
	Arguments []string    // of the command line that starts this run; needed for Ranks
	ErrOut    io.Writer   // of the processes that Ranks starts; nil: standard error
}

func (o Options) launch() processes.Launch {
	return processes.Launch{Ranks: o.Ranks, Arguments: o.Arguments, ErrOut: o.ErrOut}
}

// serial makes lines and events come one after the other: that of an interruption comes from a goroutine of its own.
func (o Options) serial() Options {
	mu := &sync.Mutex{}
	o.Out = &serialWriter{mu: mu, w: o.Out}
	if event := o.Event; event != nil {
		o.Event = func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			event(e)
		}
	}
	return o
}

type serialWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (s *serialWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// folderOf is the run folder of a training.
func folderOf(ctx context.Context, dir string, o Options) *runfolder.Folder {
	f := runfolder.New(dir, o.Resume)
	f.Overwrite = o.Overwrite
	f.Exported = func() []string { return export.Written(ctx, dir) }
	return f
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
	o = o.serial()
	t := &run{options: o, activity: &activity{tell: o.Event}, session: session.New(j), folder: folderOf(ctx, j.Output, o), ranks: group}
	defer func() {
		if errors.Is(err, ErrInterrupted) && o.Resumes != "" {
			t.console().say("go on with     %s", o.Resumes)
		}
		t.release(err)
		err = errors.Join(err, t.close(err))
	}()
	if group.Launched { // the others wait already, for an index that is built or for what is wrong here
		err = group.Join(ctx, o.launch())
	}
	if err == nil {
		t.checked, err = session.Check(ctx, t.session, r)
		t.algorithm = t.checked.Algorithm
		t.checked.Drop() // the run reads its data itself
	}
	if err == nil {
		err = job.Trainable(j, t.algorithm)
	}
	if err == nil {
		err = shareable(j)
	}
	if err == nil {
		err = t.room(ctx, 0)
	}
	if err == nil {
		err = t.session.Reach(ctx, false)
	}
	if err == nil {
		err = t.prepare(ctx, j)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = beforeItBegan(o.Resume, err)
		}
		return sum, err
	}
	steps := t.training()
	if steps.reports, err = beginReports(ctx, t.folder.Dir, j.Report, steps.console.warn); err != nil {
		return sum, err
	}
	err = steps.loop(ctx)
	steps.endReports(ctx, err)
	if err != nil {
		return steps.summary(), err
	}
	t.tellSilentRules(ctx)
	return steps.summary(), steps.writeSummary(ctx)
}

// beforeItBegan is the error of a run that was interrupted before its first step, with the error that it met unless that is the interruption itself.
func beforeItBegan(resumed bool, met error) error {
	because := ""
	if !errors.Is(met, context.Canceled) {
		because = ": " + met.Error()
	}
	if resumed { // what was saved is as it was
		return fmt.Errorf("%w (it had not gone on yet%s)", ErrInterrupted, because)
	}
	return fmt.Errorf("orchestrator: interrupted before the run began, so nothing is saved%s", because)
}
