package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/orchestrator/schedule"
)

// NowFile is the name of the file that says what the run's process does.
const NowFile = "now.json"

// Now is what a running process writes of itself, at least every NowBeat, for `agentfly status` in another one.
type Now struct {
	Host    string           `json:"host"`
	PID     int              `json:"pid"`
	Started time.Time        `json:"started"` // the process
	Written time.Time        `json:"written"`
	Doing   string           `json:"doing"`            // what the run does, in words
	Since   time.Time        `json:"since"`            // since when
	Waits   []Wait           `json:"waits"`            // the longest first
	Engine  []Load           `json:"engine,omitempty"` // how busy it is, a line for each of its servers
	Groups  *schedule.Groups `json:"groups,omitempty"` // those of the training tasks; nil: the run samples none
	Ended   string           `json:"ended,omitempty"`  // how the process ended the run; "" while it runs
	Error   string           `json:"error,omitempty"`  // why, where it failed
}

// How a process ends a run.
const (
	EndedDone        = "done"        // at its last step, or where eval.stop_after ends it
	EndedInterrupted = "interrupted" // from outside; it can be resumed
	EndedFailed      = "failed"
)

// Wait is what is waited for in one part of the run.
type Wait struct {
	Part    string  `json:"part"`    // engine, tool NAME, trainer
	Count   int     `json:"count"`   // waits
	Oldest  string  `json:"oldest"`  // who waits longest
	Seconds float64 `json:"seconds"` // how long
}

// Load is how busy an engine is, or one of its servers.
type Load struct {
	Server  string `json:"server,omitempty"` // its address; "": in the run's process
	Running int    `json:"running"`          // requests that it works on
	Slots   int    `json:"slots"`            // how many it works on at once
	Waiting int    `json:"waiting"`          // requests that have no slot
	Down    string `json:"down,omitempty"`   // why it takes no requests; "": it does
}

// NowBeat is how often the file is written where nothing changes.
const NowBeat = 5 * time.Second

// WriteNow replaces the file. It is of no use after a loss of power, so nothing waits for the disk.
func (f *Folder) WriteNow(n Now) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(f.Dir, NowFile), append(text, '\n'))
}

// ReadNow reads the file of a run; nil: it has none, because an older program ran it.
func ReadNow(dir string) (*Now, error) {
	text, err := os.ReadFile(filepath.Join(dir, NowFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := &Now{}
	if err := json.Unmarshal(text, n); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", filepath.Join(dir, NowFile), err)
	}
	return n, nil
}

// Running tells whether the process that wrote n still runs, as far as can be said now: it wrote lately, and on this machine its process is there.
func (n *Now) Running(now time.Time) bool {
	return n != nil && n.Ended == "" && writes(n.Host, n.PID, n.Written, 4*NowBeat, now)
}

// Holds tells whether the process that wrote n is on this machine and still has the run folder, although it writes no more: it is stopped, or hangs. The
// lock is asked last, because a process that begins to train there waits for a moment then.
func (n *Now) Holds(dir string) bool {
	here, err := os.Hostname()
	return err == nil && here == n.Host && n.PID > 0 && alive(n.PID) && locked(dir)
}

// writes tells whether a process still writes a file which it writes at least every so often.
func writes(host string, pid int, written time.Time, every time.Duration, now time.Time) bool {
	if now.Sub(written) > every {
		return false
	}
	if here, err := os.Hostname(); err != nil || here != host || pid <= 0 {
		return true
	}
	return alive(pid)
}
