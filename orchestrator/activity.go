package orchestrator

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// activity is what a run does now: for the file that other processes read, for whoever watches the run in this one, and for the line that an
// interruption is answered with. It is safe for concurrent use; nil is one that nobody asks.
type activity struct {
	mu    sync.Mutex
	kind  kindOfWork
	doing string
	since time.Time
	took  map[kindOfWork]time.Duration // the last one of its kind
	tell  func(Event)                  // nil: nobody
}

// kindOfWork is what one piece of work has in common with the next.
type kindOfWork string

const (
	opening    kindOfWork = ""
	sampling   kindOfWork = "sampling"
	evaluating kindOfWork = "evaluating"
	updating   kindOfWork = "updating" // an interruption lets it end: half an update could not be resumed
	saving     kindOfWork = "saving"   // and so is this
	pausing    kindOfWork = "pausing"  // somebody asked for it
)

// begin says what the run does from now on.
func (a *activity) begin(kind kindOfWork, format string, args ...any) {
	if a == nil {
		return
	}
	doing, now := fmt.Sprintf(format, args...), time.Now()
	a.mu.Lock()
	if a.took == nil {
		a.took = map[kindOfWork]time.Duration{}
	}
	if a.kind != opening {
		a.took[a.kind] = now.Sub(a.since)
	}
	a.kind, a.doing, a.since = kind, doing, now
	tell := a.tell
	a.mu.Unlock()
	if tell != nil {
		tell(Event{Kind: Doing, Text: doing})
	}
}

// now is what the run does, and since when.
func (a *activity) now() (doing string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.doing, a.since
}

// interrupted says what an interruption of this moment lets end, and how long that takes as far as it took before.
func (a *activity) interrupted() string {
	if a == nil {
		a = &activity{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var left time.Duration
	var out string
	switch a.kind {
	case updating, saving:
		out = "finishing what cannot be cut: " + a.doing
		left = max(0, a.took[a.kind]-time.Since(a.since))
	default:
		out = "what was sampled stays in the log"
	}
	known := a.kind != updating && a.kind != saving || a.took[a.kind] > 0
	if a.kind != saving {
		out += "; then a checkpoint is written"
		left += a.took[saving]
		known = known && a.took[saving] > 0
	}
	if known {
		out += fmt.Sprintf(" (about %s)", max(time.Second, left.Round(time.Second)))
	}
	return "stopping: " + out
}

const (
	nowEvery = time.Second     // how often what the run does is looked at
	nowWaits = 2 * time.Second // how often waits are written while somebody waits: their times go on
)

// nowBoard writes what a run does into its folder, for other processes.
type nowBoard struct {
	folder   *runfolder.Folder
	activity *activity
	waits    *watchdog.Board // nil: nobody watches
	load     func(*runfolder.Now)
	note     func(string)

	cancel context.CancelFunc
	joined sync.WaitGroup
	before *runfolder.Now // what the run's last process left; nil: nothing
	last   runfolder.Now
	failed bool // it could not be written, which was told
}

// showNow begins to write, until stop. load fills in how busy the engine is, and the groups.
func showNow(ctx context.Context, folder *runfolder.Folder, a *activity, load func(*runfolder.Now), note func(string)) *nowBoard {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	b := &nowBoard{folder: folder, activity: a, waits: watchdog.Of(ctx), load: load, note: note, last: runfolder.Now{Host: host, PID: os.Getpid(), Started: time.Now()}}
	b.before, _ = runfolder.ReadNow(folder.Dir)                     // what cannot be read is written anew
	until, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what a run saves after an interruption is told too
	b.cancel = cancel
	b.joined.Go(func() {
		t := time.NewTicker(nowEvery)
		defer t.Stop()
		for {
			b.write(false)
			select {
			case <-until.Done():
				return
			case <-t.C:
			}
		}
	})
	return b
}

// write writes what changed, or that nothing did for a while.
func (b *nowBoard) write(always bool) {
	n, now := b.last, time.Now()
	n.Doing, n.Since = b.activity.now()
	n.Waits, n.Engine, n.Groups = []runfolder.Wait{}, nil, nil
	if b.waits != nil && n.Ended == "" {
		n.Waits = waitsOf(b.waits.Lines())
	}
	if n.Ended == "" {
		b.load(&n)
	}
	quiet := now.Sub(n.Written)
	same := reflect.DeepEqual(n, b.last) // with waits it never is: their seconds go on
	if !always && (same && quiet < runfolder.NowBeat || n.Doing == b.last.Doing && len(n.Waits) == len(b.last.Waits) && quiet < nowWaits) {
		return
	}
	n.Written = now
	b.last = n
	if err := b.folder.WriteNow(n); err != nil && !b.failed {
		b.failed = true
		b.note("what the run does cannot be written for agentfly status: " + err.Error())
	}
}

// loadOf is how busy an engine is, where it tells.
func loadOf(e engines.Engine) (out []runfolder.Load) {
	if e, tells := e.(engines.Loaded); tells {
		for _, l := range e.Load() {
			out = append(out, runfolder.Load(l))
		}
	}
	return out
}

// waitsOf are the lines of a board as the run folder has them.
func waitsOf(lines []watchdog.Line) []runfolder.Wait {
	out := []runfolder.Wait{}
	for _, l := range lines {
		out = append(out, runfolder.Wait{Part: l.Part, Count: l.Count, Oldest: l.Oldest, Seconds: l.For.Seconds()})
	}
	return out
}

// stop writes how the run ended. It may be called on nil.
func (b *nowBoard) stop(ended string, failed error) {
	if b == nil {
		return
	}
	b.cancel()
	b.joined.Wait()
	b.last.Ended = ended
	if failed != nil {
		b.last.Error = failed.Error()
	}
	b.write(true)
}

// restore stops, and gives back what the run's last process left; a run that had none failed.
func (b *nowBoard) restore(refused error) {
	if b == nil {
		return
	}
	if b.before == nil {
		b.stop(runfolder.EndedFailed, refused)
		return
	}
	b.cancel()
	b.joined.Wait()
	if err := b.folder.WriteNow(*b.before); err != nil {
		b.note("what the run did cannot be written for agentfly status: " + err.Error())
	}
}
