package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/orchestrator/tree"
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

// ofGroup are the trajectories of a group that have their end: those of the indices below size, and those that fork off them, in the order of their
// trees.
func (s *Store) ofGroup(ctx context.Context, phase string, ref GroupRef, size int) (out []*trajectory.Trajectory, err error) {
	for i := range size {
		t, err := s.finished(ctx, ID(phase, ref.Step, ref.Group, i))
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, t)
		}
	}
	if s.version < 3 || len(out) == 0 { // no program of then had trees
		return out, nil
	}
	prefix := groupPrefix(ID(phase, ref.Step, ref.Group, 0))
	rows, err := s.db.QueryContext(ctx, "SELECT id FROM trajectories WHERE phase = ? AND step = ? AND branch <> '' AND substr(id, 1, ?) = ?", phase, ref.Step, len(prefix), prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		t, err := s.finished(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if len(out) > size {
		return nil, fmt.Errorf("%s has %d trajectories with an end, and %d were admitted", ref, len(out), size)
	}
	if len(ids) > 0 {
		tree.Sort(out)
	}
	return out, nil
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

// Recover reads the log of a run that goes on at a step: that of its last checkpoint, or 0. What adds goes on from there, so
// it comes before them.
func (s *Store) Recover(ctx context.Context, step int) (*Recovery, error) {
	out, err := s.recover(ctx, step)
	if err != nil {
		return nil, fmt.Errorf("store: %s: recovery: %w; restore the file from a copy, or begin a new run", s.path, err)
	}
	return out, nil
}

// opened is an admission with where its turns begin.
type opened struct {
	Admission
	turn    int64
	left    bool
	settled bool
}

func (s *Store) recover(ctx context.Context, step int) (*Recovery, error) {
	out := &Recovery{Taken: map[int]int{}}
	open := map[GroupRef][]*opened{}
	var order []*opened
	settle := func(refs ...GroupRef) {
		for _, ref := range refs {
			for _, o := range open[ref] {
				o.settled = true
			}
			delete(open, ref)
		}
	}
	err := s.events(ctx, func(kind, phase string, ref GroupRef, body []byte) error {
		if kind != kindStep && kind != kindForget {
			out.Events++
		}
		switch kind {
		case kindAdmit:
			var a admitted
			if err := json.Unmarshal(body, &a); err != nil {
				return err
			}
			if phase == Train {
				out.admitted(ref, a, step)
			}
			o := &opened{Admission: a.admission(phase, ref), turn: a.Turn}
			open[ref], order = append(open[ref], o), append(order, o)
		case kindDrop:
			settle(ref)
		case kindBatch:
			b := Batch{Step: ref.Step}
			if err := json.Unmarshal(body, &b); err != nil {
				return err
			}
			settle(b.Groups...)
			for _, group := range open {
				for _, o := range group {
					o.left = true
				}
			}
			if b.Step >= step {
				out.Batches = append(out.Batches, b)
			}
		case kindStep, kindForget:
		default:
			return fmt.Errorf("its kind %q is unknown", kind)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, b := range out.Batches {
		if b.Step != step+i {
			return nil, fmt.Errorf("the batch of step %d is missing", step+i+1)
		}
	}
	from := int64(0)
	for _, o := range order {
		if o.settled {
			continue
		}
		if err := s.outstanding(ctx, o, out); err != nil {
			return nil, err
		}
		if from == 0 {
			from = o.turn
		}
	}
	return out, s.partial(ctx, out, from)
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

// events calls f for every event in order.
func (s *Store) events(ctx context.Context, f func(kind, phase string, ref GroupRef, body []byte) error) error {
	rows, err := s.db.QueryContext(ctx, "SELECT n, kind, phase, step, grp, json, crc FROM events ORDER BY n")
	if err != nil {
		return err
	}
	defer rows.Close()
	for want := int64(1); rows.Next(); want++ {
		var n, crc int64
		var kind, phase string
		var ref GroupRef
		var body []byte
		if err := rows.Scan(&n, &kind, &phase, &ref.Step, &ref.Group, &body, &crc); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("event %d is missing", want)
		}
		if checksum(body) != crc {
			return fmt.Errorf("event %d is damaged: its checksum is wrong", n)
		}
		if err := f(kind, phase, ref, body); err != nil {
			return fmt.Errorf("event %d is damaged: %w", n, err)
		}
	}
	return rows.Err()
}

// outstanding reads the task and the finished trajectories of a group.
func (s *Store) outstanding(ctx context.Context, o *opened, out *Recovery) error {
	task, err := s.task(ctx, o.Phase, o.Task.ID)
	if err != nil {
		return err
	}
	o.Task = task
	g := Outstanding{Admission: o.Admission, Left: o.left, Finished: make([]*trajectory.Trajectory, o.Size), Partial: make([]*trajectory.Trajectory, o.Size)}
	all, err := s.ofGroup(ctx, o.Phase, o.ref(), o.Size)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Branch == "" {
			g.Finished[t.Index] = t
		} else {
			g.forks = append(g.forks, t)
		}
	}
	out.Outstanding = append(out.Outstanding, g)
	if s.writer != nil {
		s.mu.Lock()
		s.open[o.ref()] = append(s.open[o.ref()], o.Admission)
		s.mu.Unlock()
	}
	return nil
}

func (s *Store) task(ctx context.Context, phase, id string) (trajectory.Task, error) {
	var body []byte
	err := s.db.QueryRowContext(ctx, "SELECT json FROM tasks WHERE id = ? AND phase = ?", id, phase).Scan(&body)
	if err != nil {
		return trajectory.Task{}, fmt.Errorf("task %s: %w", id, err)
	}
	task, err := decodeTask(body)
	if err != nil {
		return task, fmt.Errorf("task %s is damaged: %w", id, err)
	}
	return task, nil
}

// Trajectory returns a trajectory that has its end.
func (s *Store) Trajectory(ctx context.Context, id string) (*trajectory.Trajectory, error) {
	t, err := s.finished(ctx, id)
	if err == nil && t == nil {
		err = fmt.Errorf("trajectory %s is missing", id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", s.path, err)
	}
	return t, nil
}

// finished returns a trajectory that has its end; nil: there is none.
func (s *Store) finished(ctx context.Context, id string) (*trajectory.Trajectory, error) {
	var body, turns []byte
	var crc sql.NullInt64
	columns := "json, turns, crc"
	if s.version < 2 {
		columns = "json, NULL, NULL"
	}
	err := s.db.QueryRowContext(ctx, "SELECT "+columns+" FROM trajectories WHERE id = ?", id).Scan(&body, &turns, &crc)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trajectory %s: %w", id, err)
	}
	return s.trajectory(id, body, turns, crc)
}

// partial reads the turns of the trajectories without an end; they are in the rows from that number on.
func (s *Store) partial(ctx context.Context, out *Recovery, from int64) error {
	groups, known, open := map[string]int{}, map[string]bool{}, false
	for i, g := range out.Outstanding {
		groups[groupPrefix(ID(g.Phase, g.Step, g.Group, 0))] = i
		all := append(slices.DeleteFunc(slices.Clone(g.Finished), func(t *trajectory.Trajectory) bool { return t == nil }), g.forks...)
		for _, t := range all {
			known[t.ID] = true
		}
		open = open || len(all) < g.Size
	}
	if !open {
		return out.placed(nil, nil)
	}
	rows, err := s.db.QueryContext(ctx, "SELECT n, body FROM turns WHERE n >= ? ORDER BY n", from)
	if err != nil {
		return err
	}
	defer rows.Close()
	numbers, begun := map[string][]int64{}, map[string]*trajectory.Trajectory{}
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
		if begun[head.id] == nil {
			order = append(order, head.id)
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
	return s.resume(out, numbers)
}

// placed puts the trajectories that begun has, in that order, and those that fork off another one, into the lists of their groups.
func (r *Recovery) placed(order []string, begun map[string]*trajectory.Trajectory) error {
	for i := range r.Outstanding {
		g := &r.Outstanding[i]
		prefix := groupPrefix(ID(g.Phase, g.Step, g.Group, 0))
		var forks []*trajectory.Trajectory
		for _, id := range order {
			t := begun[id]
			switch {
			case groupPrefix(id) != prefix:
			case t.Branch == "":
				g.Partial[t.Index] = t
			default:
				for t.Forked < len(t.Turns) && t.Turns[t.Forked].SharedBy() != t.ID {
					t.Forked++
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

// resume checks the partial trajectories and lets their turns count on.
func (s *Store) resume(out *Recovery, numbers map[string][]int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range out.Outstanding {
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
			if s.writer != nil {
				s.unfinished[t.ID] = m
			}
		}
	}
	return nil
}

// Groups reads groups of a batch with their finished trajectories, and the greedy one where there is one.
func (s *Store) Groups(ctx context.Context, refs []GroupRef, greedy string) ([]trajectory.Group, error) {
	var out []trajectory.Group
	for _, ref := range refs {
		g, err := s.group(ctx, ref, greedy)
		if err != nil {
			return nil, fmt.Errorf("store: %s: %s: %w; restore the file from a copy", s.path, ref, err)
		}
		out = append(out, g)
	}
	return out, nil
}

func (s *Store) group(ctx context.Context, ref GroupRef, greedy string) (g trajectory.Group, err error) {
	var body []byte
	err = s.db.QueryRowContext(ctx, "SELECT json FROM events WHERE kind = 'admit' AND phase = ? AND step = ? AND grp = ?", Train, ref.Step, ref.Group).Scan(&body)
	if err != nil {
		return g, fmt.Errorf("its admission: %w", err)
	}
	var a admitted
	if err := json.Unmarshal(body, &a); err != nil {
		return g, fmt.Errorf("its admission is damaged: %w", err)
	}
	if g.Task, err = s.task(ctx, Train, a.Task); err != nil {
		return g, err
	}
	if g.Trajectories, err = s.ofGroup(ctx, Train, ref, a.Size); err != nil {
		return g, err
	}
	if n := len(g.Trajectories); n < a.Size {
		missing := 0
		for missing < n && g.Trajectories[missing].Index == missing && g.Trajectories[missing].Branch == "" {
			missing++
		}
		if slices.ContainsFunc(g.Trajectories, func(t *trajectory.Trajectory) bool { return t.Branch != "" }) {
			return g, fmt.Errorf("%d of its %d trajectories are missing", a.Size-n, a.Size)
		}
		return g, fmt.Errorf("trajectory %s is missing", ID(Train, ref.Step, ref.Group, missing))
	}
	if greedy != "" {
		g.Greedy, err = s.finished(ctx, ID(greedy, ref.Step, ref.Group, 0))
	}
	return g, err
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
