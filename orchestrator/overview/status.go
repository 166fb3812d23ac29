package overview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Status is how a run stands at a moment.
type Status struct {
	Run
	Doing       string             `json:"doing,omitempty"`  // what the run does now, in words; "" where it does not run, or an older program runs it
	Since       *time.Time         `json:"since,omitempty"`  // since when
	Engine      []runfolder.Load   `json:"engine,omitempty"` // how busy it is
	Groups      *schedule.Groups   `json:"groups,omitempty"` // of training tasks, between their beginning and the end of their update
	Waits       []runfolder.Wait   `json:"waits,omitempty"`  // what it waits for, and for whom; the longest first
	Pools       []runfolder.Pool   `json:"pools,omitempty"`  // environments, sandboxes and interpreters of a run that runs
	Last        map[string]float64 `json:"last,omitempty"`   // the metrics of the last step
	StepSeconds float64            `json:"step_seconds"`     // mean of the last steps
	Left        *float64           `json:"left_seconds,omitempty"`
	Errors      map[string]int     `json:"errors,omitempty"`   // of all steps, by origin: trajectories that failed, tool calls that broke
	Failures    []string           `json:"failures,omitempty"` // of the last step and the one that is sampled, by cause; then the trajectories that are damaged
	PID         int                `json:"pid,omitempty"`
	Host        string             `json:"host,omitempty"`
}

const (
	recent = 10  // steps that say how long one takes
	mostOf = 512 // trajectories of a step that are read for the causes of failures
)

// ReadStatus reads how the run in a folder stands.
func ReadStatus(ctx context.Context, dir string, at time.Time) (Status, error) {
	if err := Check(dir); err != nil {
		return Status{}, err
	}
	s := Status{Run: Read(dir)}
	if s.State == Unreadable {
		return s, fmt.Errorf("%s: %s", dir, s.Error)
	}
	n := len(s.metrics)
	if n > 0 {
		s.Last = s.metrics[n-1]
	}
	s.StepSeconds = meanOf(s.metrics[max(0, n-recent):], "seconds/step")
	s.Errors = errorsOf(s.metrics)
	if s.State == Running {
		s.runs(at)
	}
	var err error
	s.Failures, err = failures(ctx, dir, n)
	return s, err
}

// runs fills in what only a run that runs has.
func (s *Status) runs(at time.Time) {
	var elapsed float64
	if now := s.now; now != nil {
		s.Doing, s.Waits, s.Engine, s.Groups, s.PID, s.Host = now.Doing, now.Waits, now.Engine, now.Groups, now.PID, now.Host
		s.Since = &now.Since
		elapsed = min(at.Sub(now.Since).Seconds(), s.StepSeconds)
	}
	if left := s.Planned - s.Steps; left > 0 && s.StepSeconds > 0 {
		seconds := float64(left)*s.StepSeconds - max(0, elapsed)
		s.Left = &seconds
	}
	r, err := runfolder.ReadResources(s.Dir)                                                            // most runs have none
	if now := s.now; err == nil && !r.Ended && (now == nil || now.PID == r.PID && now.Host == r.Host) { // else they were an earlier process's
		s.Pools, s.PID, s.Host = r.Pools, r.PID, r.Host
	}
}

func meanOf(steps []map[string]float64, key string) float64 {
	sum := 0.0
	for _, m := range steps {
		sum += m[key]
	}
	return sum / max(1, float64(len(steps)))
}

// errorsOf sums up the errors of steps by origin; those without one are left out.
func errorsOf(steps []map[string]float64) map[string]int {
	out := map[string]int{}
	for _, m := range steps {
		for key, v := range m {
			if origin, ok := strings.CutPrefix(key, "errors/"); ok && v > 0 {
				out[origin] += int(v)
			}
		}
	}
	return out
}

// failures are the causes in what was sampled for the last step that is done, and for the one after it.
func failures(ctx context.Context, dir string, done int) (lines []string, err error) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	byGroup := map[store.GroupRef]*trajectory.Group{}
	var cut, damaged []string
	enough := errors.New("enough")
	for step := max(0, done-1); step <= done; step++ {
		read := 0
		err := db.Select(ctx, store.Selection{Phase: store.Train, Step: &step, Damaged: func(err error) { damaged = append(damaged, err.Error()) }}, func(r store.Record) error {
			if read++; read > mostOf {
				return enough
			}
			ref := store.GroupRef{Step: step, Group: r.Trajectory.Group}
			if byGroup[ref] == nil {
				byGroup[ref] = &trajectory.Group{Task: r.Task}
			}
			byGroup[ref].Trajectories = append(byGroup[ref].Trajectories, r.Trajectory)
			return nil
		})
		switch {
		case errors.Is(err, enough):
			cut = append(cut, fmt.Sprintf("counted are the first %d trajectories of step %d", mostOf, step+1))
		case err != nil:
			return nil, err
		}
	}
	var groups []trajectory.Group
	for _, ref := range slices.SortedFunc(maps.Keys(byGroup), store.GroupRef.Compare) {
		groups = append(groups, *byGroup[ref])
	}
	if lines = report.FailureLines(groups); len(lines) > 0 {
		lines = append(lines, cut...)
	}
	return append(lines, damaged...), nil
}
