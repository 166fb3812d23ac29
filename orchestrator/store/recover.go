package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Recovery is what the log holds beyond a checkpoint.
type Recovery struct {
	Batches     []Batch       // of the checkpoint's step and later ones, in order; Groups gives their trajectories
	Outstanding []Outstanding // admitted, neither trained nor dropped, in the order of admission
	Dealt       []int         // position in each stratum of the data after all admissions
	Taken       map[int]int   // by step, of this step and later ones: the highest number of an admitted group, plus one
	Events      int           // admissions, drops and batches since the run began; 0: the store is of a program that kept no log
}

// Outstanding is a group whose sampling began. The place of a trajectory in its lists is its index; those of a tree that fork off another one have
// the places that are left.
type Outstanding struct {
	Admission
	Left     bool                     // a batch was taken since its admission
	Cut      map[string]bool          // ids of those that ended after such a batch
	Latest   bool                     // no turn of another group was sampled between its admission and the newest one
	Finished []*trajectory.Trajectory // [Size]; nil where one has no end yet
	Partial  []*trajectory.Trajectory // [Size]; turns and samples of those, nil where there are none
	forks    []*trajectory.Trajectory // with an end, not placed yet
}

// place puts trajectories that fork off another one into the places that are left.
func (g *Outstanding) place(into []*trajectory.Trajectory, forks []*trajectory.Trajectory) error {
	at := 0
	for _, t := range forks {
		for at < g.Size && (g.Finished[at] != nil || g.Partial[at] != nil) {
			at++
		}
		if at == g.Size {
			return fmt.Errorf("%s has more trajectories than the %d that were admitted", g.ref(), g.Size)
		}
		into[at] = t
	}
	return nil
}

// Training are the outstanding groups of the phase train, by place.
func (r *Recovery) Training() (out []*Outstanding) {
	for i := range r.Outstanding {
		if o := &r.Outstanding[i]; o.Phase == Train {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *Outstanding) int {
		return GroupRef{Step: a.Step, Group: a.Group}.Compare(GroupRef{Step: b.Step, Group: b.Group})
	})
	return out
}

// recoverLog reads what the log holds beyond a step, and how much is stored of each trajectory without an end.
func recoverLog(ctx context.Context, all trajectories, step int) (*Recovery, map[string]*mark, error) {
	r := &recoverer{all: all, step: step, out: &Recovery{Taken: map[int]int{}}, open: map[GroupRef][]*opened{}, unfinished: map[string]*mark{}}
	if err := r.read(ctx); err != nil {
		if ctx.Err() != nil { // nothing is wrong with the file
			return nil, nil, fmt.Errorf("store: %s: recovery: %w", all.file.path, context.Cause(ctx))
		}
		return nil, nil, fmt.Errorf("store: %s: recovery: %w; restore the file from a copy, or begin a new run", all.file.path, err)
	}
	return r.out, r.unfinished, nil
}

// recoverer reads the log from its beginning, and then what is stored of the groups that are left open.
type recoverer struct {
	all        trajectories
	step       int // that the run goes on at
	out        *Recovery
	open       map[GroupRef][]*opened // so far
	order      []*opened              // all admissions
	unfinished map[string]*mark       // trajectories that have turns and no end
}

// opened is an admission with where its turns begin.
type opened struct {
	Admission
	turn    int64
	batch   int64 // first row of turns behind the first batch since; 0: none is known
	left    bool
	settled bool
}

func (r *recoverer) read(ctx context.Context) error {
	if err := r.all.file.events(ctx, r.event); err != nil {
		return err
	}
	for i, b := range r.out.Batches {
		if b.Step != r.step+i {
			return fmt.Errorf("the batch of step %d is missing", r.step+i+1)
		}
	}
	from, latest := int64(0), int64(0)
	for _, o := range r.order {
		latest = max(latest, o.turn)
	}
	for _, o := range r.order {
		if o.settled {
			continue
		}
		if err := r.outstanding(ctx, o, o.turn == latest); err != nil {
			return err
		}
		if from == 0 {
			from = o.turn
		}
	}
	return r.partial(ctx, from)
}

// event takes one event of the log in.
func (r *recoverer) event(kind, phase string, ref GroupRef, turn int64, body []byte) error {
	if kind != kindStep && kind != kindForget {
		r.out.Events++
	}
	switch kind {
	case kindAdmit:
		var a admitted
		if err := json.Unmarshal(body, &a); err != nil {
			return err
		}
		if phase == Train {
			r.out.admitted(ref, a, r.step)
		}
		o := &opened{Admission: a.admission(phase, ref), turn: a.Turn}
		r.open[ref], r.order = append(r.open[ref], o), append(r.order, o)
	case kindDrop:
		r.settle(ref)
	case kindBatch:
		b := Batch{Step: ref.Step}
		if err := json.Unmarshal(body, &b); err != nil {
			return err
		}
		r.settle(b.Groups...)
		for _, group := range r.open {
			for _, o := range group {
				if o.Stratum < len(b.Dealt) && o.Position >= b.Dealt[o.Stratum] { // it began while the batch was being stored
					continue
				}
				if !o.left {
					o.left, o.batch = true, turn
				}
			}
		}
		if b.Step >= r.step {
			r.out.Batches = append(r.out.Batches, b)
		}
	case kindStep, kindForget:
	default:
		return fmt.Errorf("its kind %q is unknown", kind)
	}
	return nil
}

// settle closes groups that nothing more comes of.
func (r *recoverer) settle(refs ...GroupRef) {
	for _, ref := range refs {
		for _, o := range r.open[ref] {
			o.settled = true
		}
		delete(r.open, ref)
	}
}

// outstanding reads the task and the finished trajectories of a group.
func (r *recoverer) outstanding(ctx context.Context, o *opened, latest bool) error {
	task, err := r.all.task(ctx, o.Phase, o.Task.ID)
	if err != nil {
		return err
	}
	o.Task = task
	g := Outstanding{Admission: o.Admission, Left: o.left, Cut: map[string]bool{}, Latest: latest, Finished: make([]*trajectory.Trajectory, o.Size), Partial: make([]*trajectory.Trajectory, o.Size)}
	ended, err := r.all.ofGroup(ctx, o.Phase, o.ref(), o.Size)
	if err != nil {
		return err
	}
	for _, t := range ended {
		if o.batch > 0 {
			last, err := r.all.lastRow(ctx, t.ID)
			if err != nil {
				return err
			}
			if last >= o.batch {
				g.Cut[t.ID] = true
			}
		}
		if t.Branch == "" {
			g.Finished[t.Index] = t
		} else {
			g.forks = append(g.forks, t)
		}
	}
	r.out.Outstanding = append(r.out.Outstanding, g)
	return nil
}

// partial reads the turns of the trajectories without an end, and of those that failed and were tried again since; they are in the rows from that number on.
func (r *recoverer) partial(ctx context.Context, from int64) error {
	out := r.out
	groups, known, failed, open := map[string]int{}, map[string]bool{}, map[string]bool{}, false
	for i, g := range out.Outstanding {
		groups[groupPrefix(ID(g.Phase, g.Step, g.Group, 0))] = i
		all := append(slices.DeleteFunc(slices.Clone(g.Finished), func(t *trajectory.Trajectory) bool { return t == nil }), g.forks...)
		for _, t := range all {
			known[t.ID], failed[t.ID] = !t.Failed(), t.Failed()
			open = open || t.Failed()
		}
		open = open || len(all) < g.Size
	}
	if !open {
		return out.placed(nil, nil)
	}
	rows, err := r.all.file.db.QueryContext(ctx, "SELECT n, body FROM turns WHERE n >= ? ORDER BY n", from)
	if err != nil {
		return err
	}
	defer rows.Close()
	numbers, begun, listed, over := map[string][]int64{}, map[string]*trajectory.Trajectory{}, map[string]bool{}, map[string]bool{}
	var order []string
	for rows.Next() {
		var n int64
		var body []byte
		if err := rows.Scan(&n, &body); err != nil {
			return err
		}
		head, _, err := readHead(body)
		if err != nil {
			return fmt.Errorf("row %d of turns is damaged: %w", n, err)
		}
		at, ok := groups[groupPrefix(head.id)]
		index, branch, named := placeOf(head.id)
		if !ok || !named || known[head.id] || index >= out.Outstanding[at].Size {
			continue
		}
		if failed[head.id] { // what follows its end is of a process that tried it again
			if head.ended {
				over[head.id] = true
				delete(begun, head.id)
			}
			if head.ended || !over[head.id] || begun[head.id] == nil && !head.anew() {
				continue
			}
		}
		if !listed[head.id] {
			order, listed[head.id] = append(order, head.id), true
		}
		if begun[head.id] == nil || head.anew() { // it begins, or anew
			g := out.Outstanding[at]
			begun[head.id] = &trajectory.Trajectory{ID: head.id, TaskID: g.Task.ID, Group: g.Group, Index: index, Branch: branch, Step: g.Step}
			numbers[head.id] = nil
		}
		t := begun[head.id]
		if err := grow(t, body); err != nil {
			return fmt.Errorf("row %d of turns, of trajectory %s, is damaged: %w", n, head.id, err)
		}
		numbers[head.id] = append(numbers[head.id], n)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := out.placed(order, begun); err != nil {
		return err
	}
	return r.marks(numbers)
}

// marks checks the trajectories without an end, and keeps how much of each is stored, in which rows.
func (r *recoverer) marks(numbers map[string][]int64) error {
	for _, g := range r.out.Outstanding {
		for _, t := range g.Partial {
			if t == nil {
				continue
			}
			m := &mark{turns: len(t.Turns), posts: len(t.Posted), rows: numbers[t.ID]}
			for k, sample := range t.Samples {
				if err := sample.Check(); err != nil {
					return fmt.Errorf("trajectory %s, sample %d: %w", t.ID, k, err)
				}
				m.lens = append(m.lens, sample.Len())
			}
			r.unfinished[t.ID] = m
		}
	}
	return nil
}

// admitted counts the deals of a group of the phase "train".
func (r *Recovery) admitted(ref GroupRef, a admitted, step int) {
	for len(r.Dealt) <= a.Stratum {
		r.Dealt = append(r.Dealt, 0)
	}
	r.Dealt[a.Stratum] = max(r.Dealt[a.Stratum], a.Position+1)
	if ref.Step >= step {
		r.Taken[ref.Step] = max(r.Taken[ref.Step], ref.Group+1)
	}
}

// placed puts the trajectories that begun has, in that order, and those that fork off another one, into the lists of their groups.
func (r *Recovery) placed(order []string, begun map[string]*trajectory.Trajectory) error {
	for i := range r.Outstanding {
		g := &r.Outstanding[i]
		prefix := groupPrefix(ID(g.Phase, g.Step, g.Group, 0))
		var forks []*trajectory.Trajectory
		again := func(t *trajectory.Trajectory) bool { return begun[t.ID] != nil } // it failed, and goes on
		g.forks = slices.DeleteFunc(g.forks, again)
		for _, id := range order {
			t := begun[id]
			switch {
			case groupPrefix(id) != prefix || t == nil:
			case t.Branch == "":
				g.Finished[t.Index], g.Partial[t.Index] = nil, t
			default:
				for t.Forked < len(t.Turns) && t.Turns[t.Forked].SharedBy() != t.ID {
					t.Forked++
				}
				if t.ForkedAt == 0 { // else a row says it
					t.ForkedAt = forkOf(t)
				}
				forks = append(forks, t)
			}
		}
		if err := errors.Join(g.place(g.Finished, g.forks), g.place(g.Partial, forks)); err != nil {
			return err
		}
	}
	return nil
}

// groupPrefix is the id of a trajectory up to its index: what the ids of its group begin with.
func groupPrefix(id string) string { return id[:strings.LastIndexByte(id, '-')+1] }

// placeOf is what an id says behind the prefix of its group.
func placeOf(id string) (index int, b trajectory.Branch, ok bool) {
	first, path, forks := strings.Cut(id[len(groupPrefix(id)):], ".")
	index, err := strconv.Atoi(first)
	b = trajectory.Branch(path)
	return index, b, err == nil && index >= 0 && forks == (path != "") && b.Check() == nil
}
