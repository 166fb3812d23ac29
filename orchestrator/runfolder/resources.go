package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ResourcesFile is the name of the file that says what the run's environments, sandboxes and interpreters do.
const ResourcesFile = "resources.json"

// Resources is what a running process writes of its pools, at least every ResourcesBeat, for `agentfly resources` in another one.
type Resources struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Written time.Time `json:"written"`
	Ended   bool      `json:"ended"` // the process said good-bye: nothing changes any more
	Pools   []Pool    `json:"pools"`
}

// ResourcesBeat is how often the file is written where nothing changes.
const ResourcesBeat = 5 * time.Second

// Pool is one pool of resources. Counts and times are over the life of the process.
type Pool struct {
	Name     string `json:"name"`
	Size     int    `json:"size"`
	InUse    int    `json:"in_use"`
	Ready    int    `json:"ready"`
	Starting int    `json:"starting"`
	Waiting  int    `json:"waiting"`
	Broken   bool   `json:"broken"` // none can be made: waiting ends with an error until one can be made again

	Leases   int64 `json:"leases"`
	Made     int64 `json:"made"`
	Failed   int64 `json:"failed"`   // attempts to make one
	Replaced int64 `json:"replaced"` // closed for another: failed, silent, too old, too big, used up

	Wait  Times  `json:"wait"`            // from asking to the lease
	Held  Times  `json:"held"`            // of leases that were given back
	Reset *Timed `json:"reset,omitempty"` // of environments
	Step  *Timed `json:"step,omitempty"`

	Failures map[string]int64 `json:"failures,omitempty"` // of environments, by what they were asked

	Holders []Holder `json:"holders"` // the longest first; at most MostHolders
	Queue   []Holder `json:"queue"`   // in the order in which they are served; at most MostHolders
}

// MostHolders is how many holders, and how many that wait, are named.
const MostHolders = 256

// Times are seconds.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Timed are the seconds of a number of things.
type Timed struct {
	Count int64 `json:"count"`
	Times
}

// Holder is who holds a resource, or waits for one.
type Holder struct {
	Name  string    `json:"name"`
	Group string    `json:"group,omitempty"`
	Since time.Time `json:"since"`
}

// WriteResources replaces the file. It is of no use after a loss of power, so nothing waits for the disk.
func (f *Folder) WriteResources(r Resources) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(f.Dir, ResourcesFile), append(text, '\n'))
}

// ReadResources reads the file of a run. Its error says what to do where there is none.
func ReadResources(dir string) (r Resources, err error) {
	text, err := os.ReadFile(filepath.Join(dir, ResourcesFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, run := os.Stat(filepath.Join(dir, JobFile)); run != nil {
			return r, fmt.Errorf("%s is no run folder: it has no %s", dir, JobFile)
		}
		return r, fmt.Errorf("the run in %s has not written %s: it has no environments, sandboxes or interpreters to lend, or an older program trained it", dir, ResourcesFile)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s cannot be read: %w", filepath.Join(dir, ResourcesFile), err)
	}
	return r, nil
}

// Running tells whether the process that wrote r still runs, as far as can be said now: it wrote lately, and on this machine its process is there.
func (r Resources) Running(now time.Time) bool {
	return !r.Ended && writes(r.Host, r.PID, r.Written, 4*ResourcesBeat, now)
}
