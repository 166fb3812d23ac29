package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentfly/agentfly/export"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// The times of reports. A target is written again after so long that it takes a twentieth of the time of one processor at most.
const (
	reportTry   = 30 * time.Second // longest, while the run trains
	reportPause = 2 * time.Second  // between two, at least
	reportShare = 20               // the pause is so many times as long as the last one took
	reportLast  = time.Minute      // for what is sent at the end of a run
	reportStop  = 5 * time.Second  // the same, where the run was interrupted or failed
	reportGrace = time.Second      // for a call that is cancelled to return
)

var reportBackoff = retry.Backoff{First: 5 * time.Second, Most: 5 * time.Minute}

// reports keep the targets of a job up to date while its run trains, each in a goroutine of its own that reads the run folder as `agentfly export`
// does: no target is waited for on the way of training. The zero pointer has no target.
type reports struct {
	targets []*reportTarget
	stop    context.CancelFunc
	limit   func(interrupted bool) time.Duration // for the last one
}

// reportTarget is one target. Its goroutine alone touches sent, until ended is closed.
type reportTarget struct {
	job.Report
	format export.Format
	dir    string
	due    chan struct{} // a step ended
	ended  chan struct{} // the goroutine has
	sent   export.Sent

	mu   sync.Mutex
	warn func(string) // nil: it said what is to be said
}

// beginReports starts the reports of a run; nil: its job has none.
func beginReports(ctx context.Context, dir string, of []job.Report, warn func(string)) (*reports, error) {
	if len(of) == 0 {
		return nil, nil
	}
	r := &reports{limit: func(cut bool) time.Duration {
		if cut {
			return reportStop
		}
		return reportLast
	}}
	for _, one := range of {
		f, err := export.Lookup(one.Format)
		if err != nil {
			return nil, err
		}
		export.Sweep(filepath.Join(dir, one.Format)) // what a killed run left
		r.targets = append(r.targets, &reportTarget{
			Report: one, format: f, dir: dir, warn: warn, due: make(chan struct{}, 1), ended: make(chan struct{}), sent: export.Sent{},
		})
	}
	ctx, r.stop = context.WithCancel(ctx)
	for _, t := range r.targets {
		go t.follow(ctx)
	}
	return r, nil
}

// step says that a step is recorded. It does not wait.
func (r *reports) step() {
	if r == nil {
		return
	}
	for _, t := range r.targets {
		select {
		case t.due <- struct{}{}:
		default: // it is to look already
		}
	}
}

// finish writes every target a last time, with the state that the run ends in, and returns what could not be written. It waits a bounded time, also for
// a file system that hangs.
func (r *reports) finish(ctx context.Context, state overview.State) (late []string) {
	if r == nil {
		return nil
	}
	r.stop()
	whole := state == overview.Ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.limit(!whole))
	defer cancel()
	results := make([]chan error, len(r.targets))
	for i, t := range r.targets {
		results[i] = make(chan error, 1)
		go func() { results[i] <- t.last(ctx, state) }()
	}
	deadline, stop := context.WithTimeout(context.WithoutCancel(ctx), r.limit(!whole)+reportGrace)
	defer stop()
	for i, t := range r.targets {
		var err error
		select {
		case err = <-results[i]:
		case <-deadline.Done():
			err = errors.New("it did not answer in time")
		}
		t.mu.Lock()
		t.warn = nil // nothing is told after the run
		t.mu.Unlock()
		if err != nil {
			late = append(late, t.behind(err))
		}
	}
	return late
}

// behind says that a target has not all, and how it gets it.
func (t *reportTarget) behind(err error) string {
	to := ""
	if t.URL != "" {
		to = "--to " + wording.ShellWord(t.Shown()) + " "
	}
	name := t.Format
	if t.URL != "" {
		name += " at " + t.Shown()
	}
	return fmt.Sprintf("the report to %s is behind: %v; catch up with: agentfly export %s%s %s", name, err, to, wording.ShellWord(t.dir), t.Format)
}

// follow writes the target after steps, until ctx ends.
func (t *reportTarget) follow(ctx context.Context) {
	defer close(t.ended)
	if !t.format.Live() {
		return
	}
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.due:
		}
		begin := time.Now()
		err := t.write(ctx, reportTry, "")
		pause := max(reportPause, reportShare*time.Since(begin))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		default:
			failures++
			pause = max(pause, reportBackoff.Wait(failures))
			t.tell(err)
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// tell says once that a target is behind.
func (t *reportTarget) tell(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.warn != nil {
		t.warn(t.behind(err) + "; the run goes on and tries again")
		t.warn = nil
	}
}

// last writes the target when the run ends so. What is made of trajectories is written of a run that is done alone.
func (t *reportTarget) last(ctx context.Context, state overview.State) error {
	select {
	case <-t.ended: // the file is its
	case <-ctx.Done():
		return errors.New("the last try hangs")
	}
	if state != overview.Ended && !t.format.Live() {
		return nil
	}
	return t.write(ctx, reportLast, state)
}

// write writes or sends the run as it is now; state "": the one that its folder tells.
func (t *reportTarget) write(ctx context.Context, most time.Duration, state overview.State) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	run, err := export.Open(ctx, t.dir)
	if err != nil {
		return err
	}
	if state != "" {
		run.State = state
	}
	if t.format.Send != nil {
		run.Sent = t.sent
		_, err := t.format.Send(ctx, t.URL, run)
		return err
	}
	every := run.Trajectories
	run.Trajectories = func(ctx context.Context, f func(store.Record) error) error {
		return every(ctx, func(r store.Record) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(r)
		})
	}
	return export.Follow(ctx, t.format, filepath.Join(t.dir, t.Format, t.format.File(run)), run)
}
