package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// run is one run folder that is looked at.
type run struct {
	name    string // path below the folder that is served
	db      *store.Reader
	decode  func() (text func([]int32) string, found bool) // loads the run's tokenizer
	changed func()                                         // is called after every change, without the lock
	path    string                                         // of the store
	file    os.FileInfo                                    // of the store that db reads
	end     context.CancelFunc                             // of what start began
	over    <-chan struct{}                                // is closed by end: the folder holds another run now, or none
	done    sync.WaitGroup
	asked   func()        // somebody wants the trajectories: they are read at once
	wanted  chan struct{} // is closed by asked

	reading   sync.Mutex
	tokenizer func([]int32) string // that decode found; nil: it found none yet

	mu       sync.Mutex
	index    index
	steps    []int                // in order
	columns  map[string][]float64 // [steps] by metric; NaN: the step has none
	evals    report.Evaluations
	scored   []json.RawMessage // evals as they are stored
	tasks    map[string][]byte // id -> text in lower case
	loaded   bool              // all that was stored when the run was opened is read
	damaged  int               // trajectories that cannot be read
	fault    string            // why nothing new is read; "": it is
	revision int               // counts changes
	edition  int64             // grows where steps or evaluations that were told of are replaced or removed; a run that is opened anew has another
}

// start reads the run and follows it until ctx ends, or close.
func (r *run) start(ctx context.Context) error {
	ctx, r.end = context.WithCancel(ctx)
	r.over = ctx.Done()
	end, err := r.db.End(ctx)
	if err != nil {
		return err
	}
	r.columns, r.tasks = map[string][]float64{}, map[string][]byte{}
	r.edition = time.Now().UnixMicro()
	r.wanted = make(chan struct{})
	r.asked = sync.OnceFunc(func() { close(r.wanted) })
	if err := r.db.EachStep(ctx, r.step); err != nil {
		return err
	}
	if err := r.evaluations(); err != nil {
		return err
	}
	if err := r.db.EachBatch(ctx, r.index.batch); err != nil {
		return err
	}
	if err := r.db.EachDrop(ctx, r.index.drop); err != nil {
		return err
	}
	r.done.Go(func() {
		if err := r.follow(ctx, end); err != nil && ctx.Err() == nil {
			r.tell(err.Error())
		}
	})
	r.done.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(soon):
				if !r.stands() {
					r.end()
					r.changed() // who looks asks anew, and finds the run that took its place
					return
				}
				_ = r.evaluations() // a store that cannot be read is told of by follow
			case <-ctx.Done():
			}
		}
	})
	return nil
}

// text makes the text of tokens. A run may get its tokenizer with its first checkpoint, so that only one that was found is kept.
func (r *run) text() func([]int32) string {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.tokenizer != nil {
		return r.tokenizer
	}
	text, found := r.decode()
	if found {
		r.tokenizer = text
	}
	return text
}

// alter changes the run under its lock and tells those who look.
func (r *run) alter(f func()) {
	r.mu.Lock()
	f()
	r.revision++
	r.mu.Unlock()
	r.changed()
}

// chunk is how many trajectories are read under one lock.
const chunk = 500

// curvesFirst is how long the trajectories are left unread when a run is opened, so that its curves, which are asked for first, are drawn before
// the processor is busy with them.
const curvesFirst = time.Second

// seldom is the longest wait between two tries to read all that is stored: of a large store that stays unreadable each takes long.
const seldom = time.Minute

// follow reads what is stored, and then what is added. What cannot be read is read again: a disk may fail for a moment.
func (r *run) follow(ctx context.Context, end store.Cursor) error {
	select {
	case <-r.wanted:
	case <-time.After(curvesFirst):
	case <-ctx.Done():
		return ctx.Err()
	}
	for wait := soon; ; wait = min(2*wait, seldom) {
		err := r.stored(ctx)
		if err == nil {
			break
		}
		if err := r.again(ctx, err, wait); err != nil {
			return err
		}
	}
	r.alter(func() { r.loaded, r.fault = true, "" })
	for {
		err := r.tail(ctx, &end)
		if err == nil || errors.Is(err, store.ErrNoLog) {
			return err
		}
		if err := r.again(ctx, err, soon); err != nil {
			return err
		}
		if now, err := r.db.End(ctx); err == nil && now == end { // nothing is unread
			r.tell("")
		}
	}
}

// again tells of a failed read and waits for the next try.
func (r *run) again(ctx context.Context, err error, wait time.Duration) error {
	if ctx.Err() == nil {
		r.tell(err.Error())
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// stored reads the tasks and the trajectories. It may be called again where it failed.
func (r *run) stored(ctx context.Context) error {
	r.mu.Lock()
	r.damaged = 0
	r.mu.Unlock()
	if err := r.db.EachTask(ctx, r.task); err != nil {
		return err
	}
	type read struct {
		phase string
		t     *trajectory.Trajectory
		text  []byte
	}
	var some []read
	flush := func() {
		if len(some) == 0 {
			return
		}
		r.alter(func() {
			for _, x := range some {
				r.index.put(newEntry(x.phase, x.t, &r.index.names), x.text)
			}
		})
		some = some[:0]
	}
	defer flush()
	return r.db.EachNewest(ctx, func(phase string, t *trajectory.Trajectory, damaged error) error {
		if damaged != nil {
			r.alter(func() { r.damaged++ })
			return nil
		}
		if some = append(some, read{phase, t, textOf(t)}); len(some) == chunk {
			flush()
		}
		return nil
	})
}

// tail applies what is added to the log behind a place, which it moves on, until ctx ends or the log cannot be read.
func (r *run) tail(ctx context.Context, at *store.Cursor) error {
	for entry, err := range r.db.Tail(ctx, *at) {
		if err == nil {
			if err := r.event(ctx, entry.Event); err != nil {
				return err // the next try begins with this event
			}
			r.tell("")
		}
		*at = entry.Next
		if err != nil {
			return err
		}
	}
	return nil
}

// tell says why nothing new is read; "": it is.
func (r *run) tell(fault string) {
	r.mu.Lock()
	same := r.fault == fault
	r.mu.Unlock()
	if !same {
		r.alter(func() { r.fault = fault })
	}
}

// event applies what the log says.
func (r *run) event(ctx context.Context, e store.Event) error {
	switch e := e.(type) {
	case store.TrajectoryGrew:
		if e.Ended {
			return r.ended(ctx, e.ID)
		}
	case store.BatchTaken:
		r.alter(func() { r.index.batch(e.Batch) })
	case store.GroupDropped: // no news by itself: a list shows nothing of it, and an open trajectory asks again with the next step
		r.mu.Lock()
		r.index.drop(e.GroupRef)
		r.mu.Unlock()
	case store.StepEnded:
		r.alter(func() {
			if e.Metrics != nil {
				r.put(e.Step, e.Metrics)
			}
		})
	case store.StepsForgotten:
		r.alter(func() {
			r.edition++
			r.index.forget(e.From)
			at, _ := slices.BinarySearch(r.steps, e.From)
			r.steps = r.steps[:at]
			for key, column := range r.columns {
				r.columns[key] = column[:at]
			}
		})
	}
	return nil
}

// ended reads a trajectory that is stored whole now. It may have been forgotten again since.
func (r *run) ended(ctx context.Context, id string) error {
	record, err := r.db.Record(ctx, id)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case store.Damaged(err):
		r.alter(func() { r.damaged++ })
		return nil
	case err != nil || record == nil:
		return err
	}
	text := textOf(record.Trajectory)
	r.task(record.Task)
	r.alter(func() {
		r.index.put(newEntry(record.Phase, record.Trajectory, &r.index.names), text)
	})
	return nil
}

// evaluations reads them anew, because the log does not tell of them: there are few, and one of the same name and step is replaced.
func (r *run) evaluations() error {
	all, err := r.db.Evaluations()
	if err != nil {
		return err
	}
	r.mu.Lock()
	same := slices.EqualFunc(all, r.scored, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	r.mu.Unlock()
	if same {
		return nil
	}
	var out []report.Evaluation
	for _, body := range all {
		var e report.Evaluation
		if json.Unmarshal(body, &e) == nil {
			out = append(out, e)
		}
	}
	r.alter(func() {
		for _, known := range r.scored {
			if !slices.ContainsFunc(all, func(a json.RawMessage) bool { return bytes.Equal(a, known) }) {
				r.edition++
			}
		}
		r.evals, r.scored = out, all
	})
	return nil
}

// task keeps what a search reads of a task.
func (r *run) task(t trajectory.Task) {
	var b bytes.Buffer
	for _, m := range t.Prompt {
		for _, p := range m.Content {
			b.WriteString(p.Text)
			b.WriteByte('\n')
		}
	}
	text := bytes.ToLower(b.Bytes())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[t.ID] == nil {
		r.tasks[t.ID] = text
	}
}

func (r *run) step(n int, metrics map[string]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(n, metrics)
}

// put sets the metrics of a step. The caller holds the lock, as in what follows.
func (r *run) put(n int, metrics map[string]float64) {
	r.index.step(n)
	if _, ok := metrics["distill/reverse_kl"]; ok {
		r.index.distillation()
	}
	at, have := slices.BinarySearch(r.steps, n)
	if have { // it was trained anew
		r.edition++
		for _, column := range r.columns {
			column[at] = math.NaN()
		}
	} else {
		r.steps = slices.Insert(r.steps, at, n)
		for key := range r.columns {
			r.columns[key] = slices.Insert(r.columns[key], at, math.NaN())
		}
	}
	for key, v := range metrics {
		column := r.columns[key]
		if column == nil {
			column = make([]float64, len(r.steps))
			for i := range column {
				column[i] = math.NaN()
			}
			r.columns[key] = column
		}
		column[at] = v
	}
}

// tasksWith are the tasks whose prompt holds a text.
func (r *run) tasksWith(text string) map[string]bool {
	if text == "" {
		return nil
	}
	needle, out := bytes.ToLower([]byte(text)), map[string]bool{}
	for id, prompt := range r.tasks {
		if bytes.Contains(prompt, needle) {
			out[id] = true
		}
	}
	return out
}

// change is how a metric of a step differs from the step before.
type change struct {
	Key    string `json:"key"`
	Before num    `json:"before"`
	After  num    `json:"after"`
	Usual  num    `json:"usual"` // mean size of its changes in the steps before
	Times  num    `json:"times"` // the change, in usual ones
}

// usualSteps is how many steps before tell what is usual.
const usualSteps = 20

// schedules are metrics whose changes nobody asks about: they go their way whatever happens.
var schedules = map[string]bool{"seconds/elapsed": true, "update/learning_rate": true, "update/policy_version": true}

// changes are those of a step: the rewards, then the others, the most unusual first.
func (r *run) changes(step int) []change {
	out := []change{}
	at, have := slices.BinarySearch(r.steps, step)
	if !have || at == 0 {
		return out
	}
	for key, column := range r.columns {
		before, after := column[at-1], column[at]
		if math.IsNaN(before) || math.IsNaN(after) || schedules[key] {
			continue
		}
		sum, n := 0.0, 0
		for i := max(1, at-usualSteps); i < at; i++ {
			if d := math.Abs(column[i] - column[i-1]); !math.IsNaN(d) {
				sum, n = sum+d, n+1
			}
		}
		c := change{Key: key, Before: num(before), After: num(after), Usual: num(math.NaN()), Times: num(math.NaN())}
		if n > 0 && sum > 0 {
			c.Usual, c.Times = num(sum/float64(n)), num(math.Abs(after-before)/(sum/float64(n)))
		} else if before == after {
			c.Times = 0
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b change) int {
		x, y := float64(a.Times), float64(b.Times)
		if c := cmp.Compare(rewardRank(a.Key), rewardRank(b.Key)); c != 0 {
			return c
		}
		switch { // what never changed before comes first
		case math.IsNaN(x) && !math.IsNaN(y), x > y:
			return -1
		case math.IsNaN(y) && !math.IsNaN(x), x < y:
			return 1
		}
		return strings.Compare(a.Key, b.Key)
	})
	return out
}

// rewardRank puts the reward first and its parts next: they are what is to be explained.
func rewardRank(key string) int {
	switch {
	case key == "reward/mean":
		return 0
	case strings.HasPrefix(key, "reward/"):
		return 1
	}
	return 2
}

// stands tells whether the run is followed, and the store that it reads is the one at its path: a folder may be deleted, and made again by another
// run.
func (r *run) stands() bool {
	select {
	case <-r.over:
		return false
	default:
	}
	now, err := os.Stat(r.path)
	return err == nil && os.SameFile(r.file, now)
}

// close ends what start began, and waits for it.
func (r *run) close() error {
	r.end()
	r.done.Wait()
	return r.db.Close()
}

// errGone says that the entry which a page of a list begins behind is not there any more.
var errGone = errors.New("the trajectory that the page begins behind was replaced; begin with the first page")
