package view

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
)

// shownNow is what a run does, as its process last wrote it.
type shownNow struct {
	State   string           `json:"state"` // running, silent, ended, unknown
	Host    string           `json:"host,omitempty"`
	PID     int              `json:"pid,omitempty"`
	Age     num              `json:"age"` // seconds since the process wrote it
	Up      num              `json:"up"`  // seconds that the process lives, or lived
	Doing   string           `json:"doing,omitempty"`
	For     num              `json:"for"` // seconds that it did so when it wrote
	Ended   string           `json:"ended,omitempty"`
	Error   string           `json:"error,omitempty"`
	Problem string           `json:"problem,omitempty"` // why nothing is known
	Waits   []shownWait      `json:"waits"`
	Engine  []shownLoad      `json:"engine"`
	Pools   []shownPool      `json:"pools"`
	Groups  *schedule.Groups `json:"groups,omitempty"` // of training tasks
	Numbers map[string]num   `json:"numbers"`          // errors and memory of the last step
	Control bool             `json:"control"`          // who asks may control the run
}

type shownWait struct {
	Part    string `json:"part"`
	Count   int    `json:"count"`
	Oldest  string `json:"oldest"`
	Seconds num    `json:"seconds"`
}

type shownLoad struct {
	Server  string `json:"server"` // "": in the run's process
	Running int    `json:"running"`
	Slots   int    `json:"slots"`
	Waiting int    `json:"waiting"`
	Down    string `json:"down,omitempty"` // why it takes no requests
}

type shownPool struct {
	Name     string   `json:"name"`
	Size     int      `json:"size"`
	InUse    int      `json:"in_use"`
	Ready    int      `json:"ready"`
	Starting int      `json:"starting"`
	Waiting  int      `json:"waiting"`
	Broken   bool     `json:"broken"`
	Failed   int64    `json:"failed"`
	Replaced int64    `json:"replaced"`
	P50      num      `json:"p50"` // seconds from asking to the lease
	P99      num      `json:"p99"`
	Queue    []string `json:"queue"` // who waits, the next first
}

// How a run stands.
const (
	stateRunning = "running"
	stateSilent  = "silent" // it did not say that it ended, and does not write
	stateEnded   = "ended"
	stateUnknown = "unknown"
)

// mostNow bounds what is read of a run folder's files, which others may have written; mostShown how much of it is shown.
const (
	mostNow   = 4 << 20
	mostShown = 100
)

// now is what a run does and what it waits for.
func (s *Server) now(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	out := readNow(filepath.Join(s.runs.dir, filepath.FromSlash(x.name)), time.Now())
	out.Control = out.State == stateRunning && s.access.controls(r)
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := len(x.steps) - 1; last >= 0 {
		for key, c := range x.columns {
			if (strings.HasPrefix(key, "errors/") || strings.HasPrefix(key, "memory/")) && finite(c[last]) {
				out.Numbers[key] = num(c[last])
			}
		}
	}
	return out, nil
}

// readNow reads what the process of a run folder wrote.
func readNow(dir string, now time.Time) shownNow {
	out := shownNow{State: stateUnknown, Waits: []shownWait{}, Engine: []shownLoad{}, Pools: []shownPool{}, Numbers: map[string]num{}}
	n, err := func() (*runfolder.Now, error) {
		if err := readable(filepath.Join(dir, runfolder.NowFile)); err != nil {
			return nil, err
		}
		return runfolder.ReadNow(dir)
	}()
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && n == nil:
		out.Problem = "This run wrote nothing of what it does: an older program trained it, or it has not begun."
		return out
	case err != nil:
		out.Problem = err.Error()
		return out
	}
	out.Host, out.PID, out.Doing, out.Ended, out.Error = n.Host, n.PID, n.Doing, n.Ended, n.Error
	out.Age, out.Up, out.For = num(max(0, now.Sub(n.Written).Seconds())), num(max(0, n.Written.Sub(n.Started).Seconds())), num(max(0, n.Written.Sub(n.Since).Seconds()))
	switch {
	case n.Ended != "":
		out.State = stateEnded
		return out
	case n.Running(now):
		out.State = stateRunning
	default:
		out.State = stateSilent
	}
	for _, w := range n.Waits[:min(len(n.Waits), mostShown)] {
		out.Waits = append(out.Waits, shownWait{w.Part, w.Count, w.Oldest, num(w.Seconds)})
	}
	out.Groups = n.Groups
	for _, l := range n.Engine[:min(len(n.Engine), mostShown)] {
		out.Engine = append(out.Engine, shownLoad(l))
	}
	if readable(filepath.Join(dir, runfolder.ResourcesFile)) != nil { // it lends nothing
		return out
	}
	if lent, err := runfolder.ReadResources(dir); err == nil && !lent.Ended && lent.PID == n.PID && lent.Host == n.Host {
		for _, p := range lent.Pools[:min(len(lent.Pools), mostShown)] {
			queue := []string{}
			for _, h := range p.Queue[:min(len(p.Queue), 8)] {
				queue = append(queue, h.Name)
			}
			out.Pools = append(out.Pools, shownPool{p.Name, p.Size, p.InUse, p.Ready, p.Starting, p.Waiting, p.Broken, p.Failed, p.Replaced, num(p.Wait.P50), num(p.Wait.P99), queue})
		}
	}
	return out
}

// readable refuses what would not end, or fill the memory.
func readable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", path)
	case info.Size() > mostNow:
		return fmt.Errorf("%s has %d bytes, which no run writes", path, info.Size())
	}
	return nil
}
