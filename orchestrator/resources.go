package orchestrator

import (
	"context"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
)

// resourcesEvery is how often the state of a run's pools is looked at.
const resourcesEvery = time.Second

// resourceBoard writes who holds and who waits for the run's environments, sandboxes and interpreters into its folder, for other processes.
type resourceBoard struct {
	folder *runfolder.Folder
	look   func() []runfolder.Pool
	note   func(string)

	cancel context.CancelFunc
	joined sync.WaitGroup
	last   runfolder.Resources
	failed bool // it could not be written, which was told
}

// showResources begins to write, until stop. look gives the pools of now; a run that never has one writes nothing.
func showResources(folder *runfolder.Folder, look func() []runfolder.Pool, note func(string)) *resourceBoard {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	b := &resourceBoard{folder: folder, look: look, note: note, last: runfolder.Resources{Host: host, PID: os.Getpid()}}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.joined.Go(func() {
		t := time.NewTicker(resourcesEvery)
		defer t.Stop()
		for {
			b.write(false)
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	})
	return b
}

// write writes what changed, or that nothing did for a while.
func (b *resourceBoard) write(ended bool) {
	pools := b.look()
	if len(pools) == 0 && b.last.Pools == nil {
		return
	}
	now := time.Now()
	if !ended && reflect.DeepEqual(pools, b.last.Pools) && now.Sub(b.last.Written) < runfolder.ResourcesBeat {
		return
	}
	b.last.Pools, b.last.Written, b.last.Ended = pools, now, ended
	if err := b.folder.WriteResources(b.last); err != nil && !b.failed {
		b.failed = true
		b.note("what the run's environments do cannot be written for agentfly resources: " + err.Error())
	}
}

// stop writes the last state. It may be called on nil.
func (b *resourceBoard) stop() {
	if b == nil {
		return
	}
	b.cancel()
	b.joined.Wait()
	b.write(true)
}

// environmentsOf are what a job's environments did between two looks at them; nil: it has none. told is of the last look.
func environmentsOf(s *session.Session, told *environments.Stats) *report.Environments {
	now, has := s.World.Stats()
	if !has {
		return nil
	}
	d := now.Since(*told)
	*told = now
	failures := int64(0)
	for _, n := range d.Failures {
		failures += n
	}
	return &report.Environments{
		InUse: d.Pool.Lent, Waiting: d.Pool.Waiting, Leases: d.Pool.Leases, WaitP50: d.Pool.WaitP50.Seconds(), WaitP99: d.Pool.WaitP99.Seconds(),
		Resets: d.Resets, ResetP50: d.ResetP50.Seconds(), ResetP99: d.ResetP99.Seconds(), Steps: d.Steps, StepP50: d.StepP50.Seconds(), StepP99: d.StepP99.Seconds(),
		Failures: failures, Replaced: replaced(d.Pool),
	}
}

// replaced counts the members that were closed for another.
func replaced(p pool.Stats) int64 { return p.Replaced + p.Broken + p.Ended }

// poolsOf are the pools of a session as the run folder tells them.
func poolsOf(s *session.Session) []runfolder.Pool {
	var out []runfolder.Pool
	of, has := s.World.Stats()
	for _, p := range s.Pools() {
		one := runfolder.Pool{
			Name: p.Name, Size: p.Size, InUse: p.Lent, Ready: p.Ready, Starting: p.Starting, Waiting: p.Waiting, Broken: p.Open,
			Leases: p.Leases, Made: p.Made, Failed: p.Failed, Replaced: replaced(p),
			Wait: times(p.WaitP50, p.WaitP99), Held: times(p.HeldP50, p.HeldP99), Holders: holders(p.Holders), Queue: holders(p.Waiters),
		}
		if has && of.Pool.Name == p.Name {
			one.Reset = &runfolder.Timed{Count: of.Resets, Times: times(of.ResetP50, of.ResetP99)}
			one.Step = &runfolder.Timed{Count: of.Steps, Times: times(of.StepP50, of.StepP99)}
			one.Failures = of.Failures
		}
		out = append(out, one)
	}
	return out
}

func times(p50, p99 time.Duration) runfolder.Times {
	return runfolder.Times{P50: p50.Seconds(), P99: p99.Seconds()}
}

func holders(all []pool.Holder) []runfolder.Holder {
	out := []runfolder.Holder{}
	for _, h := range all[:min(len(all), runfolder.MostHolders)] {
		out = append(out, runfolder.Holder{Name: h.Owner.Name, Group: h.Owner.Group, Since: h.Since.Round(0)})
	}
	return out
}
