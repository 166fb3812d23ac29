package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Filter says which stored trajectories are meant. Its zero value is all of them.
type Filter struct {
	store.Selection
	Low, High *float64 // bounds of what the trajectory was paid, where it has a reward
	Failed    string   // any: it has an error; else the error's origin, or whose doing it is
	Tool      string   // a call of this tool
	CallCause string   // any: a call of Tool, or of any tool, failed; else with this cause
	Text      string   // in a completion, an observation, arguments, what an agent of another program sent, or an error, whatever the case
	Sort      string   // one of Sorts, downwards behind a -; those without a reward stand last by it; "": phase, step and id
	Limit     int      // 0: all
}

// sorts are what trajectories can be ordered by.
var sorts = map[string]func(r store.Record) float64{
	"reward":  func(r store.Record) float64 { return r.Trajectory.Return() },
	"step":    func(r store.Record) float64 { return float64(store.When(r.Phase, r.Trajectory.Step)) },
	"turns":   func(r store.Record) float64 { return float64(len(r.Trajectory.Turns)) },
	"tokens":  func(r store.Record) float64 { return float64(r.Trajectory.ResponseTokens()) },
	"calls":   func(r store.Record) float64 { return float64(calls(r.Trajectory)) },
	"seconds": func(r store.Record) float64 { return r.Trajectory.Seconds },
}

// Sorts are the names of what trajectories can be ordered by.
var Sorts = []string{"reward", "step", "turns", "tokens", "calls", "seconds"}

func calls(t *trajectory.Trajectory) (n int) {
	for _, turn := range t.Turns {
		n += len(turn.Results)
	}
	return n
}

// errEnough ends the reading of a store early.
var errEnough = errors.New("enough")

// LeftOut is the error of having read the trajectories of a run of which some are damaged: all others were given out.
type LeftOut struct{ Damaged []error }

func (e *LeftOut) Error() string {
	if len(e.Damaged) == 1 {
		return fmt.Sprintf("left out 1 damaged trajectory: %v", e.Damaged[0])
	}
	return fmt.Sprintf("left out %d damaged trajectories, the first: %v", len(e.Damaged), e.Damaged[0])
}

// Trajectories calls f for the trajectories of a run folder that a filter names. One that is damaged keeps no other back: the error, behind all others,
// is then a *LeftOut. Where the filter names its id, the error is that of the trajectory.
func Trajectories(ctx context.Context, dir string, q Filter, f func(store.Record) error) (err error) {
	by, ok := sorts[strings.TrimPrefix(q.Sort, "-")]
	if q.Sort != "" && !ok {
		return fmt.Errorf("trajectories cannot be sorted by %q; allowed: %s, and each behind a -", q.Sort, strings.Join(Sorts, ", "))
	}
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var left LeftOut
	if q.ID == "" {
		q.Damaged = func(err error) { left.Damaged = append(left.Damaged, err) }
	}
	var found bool // one that the selection names, whether it matches the rest or not
	if q.Sort != "" {
		found, err = q.sorted(ctx, db, by, f)
	} else {
		found, err = q.stored(ctx, db, f)
	}
	if err == nil && !found && q.ID != "" {
		return knows(ctx, db, q.ID)
	}
	if err == nil && len(left.Damaged) > 0 {
		return &left
	}
	return err
}

// knows refuses an id that no trajectory has.
func knows(ctx context.Context, db *store.Reader, id string) error {
	found := false
	if err := db.Select(ctx, store.Selection{ID: id}, func(store.Record) error { found = true; return nil }); err != nil || found {
		return err
	}
	return fmt.Errorf("store: there is no trajectory %q", id)
}

// stored reads in the order of the store.
func (q Filter) stored(ctx context.Context, db *store.Reader, f func(store.Record) error) (found bool, err error) {
	n := 0
	err = db.Select(ctx, q.Selection, func(r store.Record) error {
		found = true
		if !q.matches(r.Trajectory) {
			return nil
		}
		if n++; q.Limit > 0 && n > q.Limit {
			return errEnough
		}
		return f(r)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, err
}

// Phases are those of a run folder's trajectories.
func Phases(ctx context.Context, dir string) (out []string, err error) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Phases(ctx)
}

// Holding is what the trajectories of a run folder are of.
type Holding struct {
	Trajectories int
	Told         []int    // steps, as people count
	Tasks, Tools []string // ids of tasks, and names of tools that were called; in order
}

// Holdings reads all trajectories of a run folder for what they are of; one that is damaged is left out.
func Holdings(ctx context.Context, dir string) (h Holding, err error) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	told, tasks, tools := map[int]bool{}, map[string]bool{}, map[string]bool{}
	err = db.Select(ctx, store.Selection{Damaged: func(error) {}}, func(r store.Record) error {
		h.Trajectories++
		told[store.Told(r.Phase, r.Trajectory.Step)] = true
		tasks[r.Trajectory.TaskID] = true
		for _, turn := range r.Trajectory.Turns {
			for _, result := range turn.Results {
				tools[result.Call.Name] = true
			}
		}
		return nil
	})
	h.Told, h.Tasks, h.Tools = slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(tasks)), slices.Sorted(maps.Keys(tools))
	return h, err
}

// sorted reads everything once for its place, and then what is wanted: the tokens of all would be too much to keep.
func (q Filter) sorted(ctx context.Context, db *store.Reader, by func(store.Record) float64, f func(store.Record) error) (found bool, err error) {
	type place struct {
		id    string
		value float64
	}
	var all, last []place
	if err := db.Select(ctx, q.Selection, func(r store.Record) error {
		found = true
		switch t := r.Trajectory; {
		case !q.matches(t):
		case !t.Scored() && strings.TrimPrefix(q.Sort, "-") == "reward":
			last = append(last, place{id: t.ID})
		default:
			all = append(all, place{t.ID, by(r)})
		}
		return nil
	}); err != nil {
		return found, err
	}
	slices.SortStableFunc(all, func(a, b place) int {
		if strings.HasPrefix(q.Sort, "-") {
			return cmp.Compare(b.value, a.value)
		}
		return cmp.Compare(a.value, b.value)
	})
	all = append(all, last...)
	if q.Limit > 0 {
		all = all[:min(len(all), q.Limit)]
	}
	for _, one := range all {
		if err := db.Select(ctx, store.Selection{ID: one.id}, f); err != nil {
			return found, err
		}
	}
	return found, nil
}

// matches tells what needs the turns.
func (q Filter) matches(t *trajectory.Trajectory) bool {
	paid := t.Return()
	switch {
	case q.Low != nil && (!t.Scored() || paid < *q.Low), q.High != nil && (!t.Scored() || paid > *q.High):
		return false
	case q.Failed == "any" && !t.Failed():
		return false
	case q.Failed != "" && q.Failed != "any" && (!t.Failed() || q.Failed != string(t.ErrOrigin) && q.Failed != string(t.Failure)):
		return false
	case (q.Tool != "" || q.CallCause != "") && !q.called(t):
		return false
	}
	return q.Text == "" || q.says(t)
}

// called tells whether one call is of the tool, and failed so.
func (q Filter) called(t *trajectory.Trajectory) bool {
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			if (q.Tool == "" || r.Call.Name == q.Tool) && (q.CallCause == "" || r.Failed && (q.CallCause == "any" || string(r.Cause) == q.CallCause)) {
				return true
			}
		}
	}
	return false
}

// says tells whether a text is in what the trajectory says or was told.
func (q Filter) says(t *trajectory.Trajectory) bool {
	text := strings.ToLower(q.Text)
	in := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	if in(t.Err) {
		return true
	}
	for _, turn := range t.Turns {
		if in(turn.Completion) || slices.ContainsFunc(turn.Incoming.Texts(), in) {
			return true
		}
		for _, r := range turn.Results {
			if in(r.Observation) || in(string(r.Call.Arguments)) {
				return true
			}
		}
	}
	return false
}
