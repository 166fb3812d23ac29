package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Admission says that the sampling of a group begins.
type Admission struct {
	Phase       string // "train", or another whose groups belong to those of the same step and number in "train"
	Step, Group int
	Task        trajectory.Task
	Size        int
	Version     int32     // of the policy then
	Stratum     int       // of the data
	Position    int       // of the task in what the stratum deals
	RetryOf     *GroupRef // the group that was given up, whose task is sampled once more, which is dropped by this; nil: none
}

func (a Admission) ref() GroupRef { return GroupRef{a.Step, a.Group} }

// GroupRef names a group of the phase "train".
type GroupRef struct {
	Step  int `json:"step"`
	Group int `json:"group"`
}

// RefOf is the place of a group.
func RefOf(g trajectory.Group) GroupRef {
	return GroupRef{Step: g.Trajectories[0].Step, Group: g.Trajectories[0].Group}
}

// Compare orders places by step, then by group.
func (r GroupRef) Compare(o GroupRef) int {
	return cmp.Or(cmp.Compare(r.Step, o.Step), cmp.Compare(r.Group, o.Group))
}

func (r GroupRef) String() string { return fmt.Sprintf("group %d of step %d", r.Group, r.Step+1) }

// Batch is what an optimizer step trains on.
type Batch struct {
	Step    int        `json:"-"`
	Version int32      `json:"version"`          // before the step
	Groups  []GroupRef `json:"groups"`           // in the order of training
	Others  []GroupRef `json:"others,omitempty"` // sampled for the step and not trained: they are dropped
	Dealt   []int      `json:"dealt,omitempty"`  // position in the data after it
	Refills int        `json:"refills,omitempty"`
	Seconds float64    `json:"seconds,omitempty"` // spent on sampling
	Running int        `json:"running,omitempty"` // trajectories that went on being sampled
	Stale   int        `json:"stale,omitempty"`   // groups that were given up because no step could have trained them in time
	Lost    []int      `json:"lost,omitempty"`    // sampled tokens of each trajectory of such groups that ended since the last batch
	Cut     []int      `json:"cut,omitempty"`     // of the trajectories of Groups, counted through: those that an earlier batch had left running
}

// Phases of what a step of training samples.
const (
	Train  = "train"  // the groups that batches name
	Greedy = "greedy" // baselines at temperature 0, never trained on
)

// ID names trajectory index of a group.
func ID(phase string, step, group, index int) string {
	return trajectory.Place{Phase: phase, Step: step, Group: group, Index: index}.ID()
}

// The kinds of events.
const (
	kindAdmit = "admit"
	kindDrop  = "drop"
	kindBatch = "batch"
	// Those that recovery does not read: they are for who follows the log (Tail).
	kindStep   = "step"   // the step's metrics and updates are stored
	kindForget = "forget" // the step and later ones are forgotten (Truncate): the run makes them again
)

// admitted is the JSON of an admission.
type admitted struct {
	Task     string `json:"task"`
	Size     int    `json:"size"`
	Version  int32  `json:"version"`
	Stratum  int    `json:"stratum,omitempty"`
	Position int    `json:"position,omitempty"`
	Turn     int64  `json:"turn"` // first row of turns that can be the group's
}

// admission is what an event of that phase and group says. Of the task it has the id.
func (a admitted) admission(phase string, ref GroupRef) Admission {
	return Admission{phase, ref.Step, ref.Group, trajectory.Task{ID: a.Task}, a.Size, a.Version, a.Stratum, a.Position, nil}
}

type dropped struct {
	Reason string `json:"reason"`
}

// Admit stores that the sampling of groups begins; all of them or none. A group is admitted once.
func (s *Store) Admit(ctx context.Context, all ...Admission) error {
	tasks := make([][]byte, len(all))
	for i, a := range all {
		var err error
		if tasks[i], err = s.newTask(a.Phase, a.Task); err != nil {
			return err
		}
		if s.isOpen(a.Phase, a.ref()) {
			return fmt.Errorf("store: %s group %d of step %d is admitted already", a.Phase, a.Group, a.Step+1)
		}
	}
	err := s.add(ctx, "admission", func(w *writer) error {
		for i, a := range all {
			if tasks[i] != nil {
				if err := w.exec("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", a.Task.ID, a.Phase, string(tasks[i])); err != nil {
					return err
				}
			}
			if a.RetryOf != nil && s.isOpen(Train, *a.RetryOf) {
				if err := w.addEvent(kindDrop, Train, a.RetryOf.Step, a.RetryOf.Group, dropped{"too stale; its task is sampled anew as " + a.ref().String()}); err != nil {
					return err
				}
			}
			if err := w.addEvent(kindAdmit, a.Phase, a.Step, a.Group, admitted{a.Task.ID, a.Size, a.Version, a.Stratum, a.Position, w.turn}); err != nil {
				return fmt.Errorf("%s group %d of step %d: %w", a.Phase, a.Group, a.Step+1, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.RetryOf != nil {
			s.settle(*a.RetryOf)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		s.open[a.ref()] = append(s.open[a.ref()], a)
		s.tasks[taskKey{a.Phase, a.Task.ID}] = true
	}
	return nil
}

func (w *writer) addEvent(kind, phase string, step, group int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	n := w.event
	w.event++
	return w.exec("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", n, kind, phase, int64(step), int64(group), string(body), checksum(body), w.turn)
}

// isOpen tells whether a group is admitted and neither trained nor dropped.
func (s *Store) isOpen(phase string, ref GroupRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.open[ref], func(a Admission) bool { return a.Phase == phase })
}

// AddBatch stores what a step trains on, before it does. Every group is admitted, and trained or dropped once.
func (s *Store) AddBatch(ctx context.Context, b Batch) error {
	seen := map[GroupRef]bool{}
	for _, ref := range b.Groups {
		if seen[ref] || !s.isOpen(Train, ref) {
			return fmt.Errorf("store: batch of step %d: %s is not admitted, or it was trained or dropped already", b.Step+1, ref)
		}
		seen[ref] = true
	}
	var drop []GroupRef
	for _, ref := range b.Others {
		if !seen[ref] && s.isOpen(Train, ref) {
			drop = append(drop, ref)
		}
		seen[ref] = true
	}
	err := s.add(ctx, fmt.Sprintf("batch of step %d", b.Step+1), func(w *writer) error {
		for _, ref := range drop {
			if err := w.addEvent(kindDrop, Train, ref.Step, ref.Group, dropped{fmt.Sprintf("not in the batch of step %d", b.Step+1)}); err != nil {
				return err
			}
		}
		return w.addEvent(kindBatch, "", b.Step, 0, b)
	})
	if err == nil {
		s.settle(b.Groups...)
		s.settle(drop...)
	}
	return err
}

// settle forgets groups that nothing more comes of.
func (s *Store) settle(refs ...GroupRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		for _, a := range s.open[ref] {
			for i := range a.Size {
				delete(s.unfinished, ID(a.Phase, a.Step, a.Group, i))
			}
		}
		delete(s.open, ref)
	}
}

// AddEvaluation stores the result of an evaluation; one of the same name and step is replaced.
func (s *Store) AddEvaluation(ctx context.Context, name string, step int, result any) error {
	body, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("store: evaluation %s: %w", name, err)
	}
	return s.add(ctx, "evaluation "+name, func(w *writer) error {
		return w.exec("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)", name, int64(step), string(body))
	})
}

// SetFact stores what is true of the whole run, such as where its job file is.
func (s *Store) SetFact(ctx context.Context, name, value string) error {
	return s.SetFacts(ctx, Fact{name, value})
}

// Fact is one thing that is true of the whole run.
type Fact struct{ Name, Value string }

// SetFacts stores several in one transaction: all of them or none.
func (s *Store) SetFacts(ctx context.Context, facts ...Fact) error {
	var names []string
	for _, f := range facts {
		names = append(names, f.Name)
	}
	return s.add(ctx, "fact "+strings.Join(names, ", "), func(w *writer) error {
		for _, f := range facts {
			if err := w.exec("INSERT OR REPLACE INTO facts VALUES (?, ?)", f.Name, f.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// Fact returns what SetFact stored; "" is nothing.
func (s *Store) Fact(name string) (string, error) {
	if s.version < 2 {
		return "", nil
	}
	var value string
	err := s.db.QueryRow("SELECT value FROM facts WHERE name = ?", name).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("store: %s: %w", name, err)
	}
	return value, nil
}

// Evaluations returns the results that AddEvaluation stored, in the order of steps.
func (s *Store) Evaluations() (out []json.RawMessage, err error) {
	rows, err := s.db.Query("SELECT json FROM evaluations ORDER BY step, name")
	if err != nil {
		return nil, fmt.Errorf("store: evaluations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return nil, fmt.Errorf("store: evaluations: %w", err)
		}
		out = append(out, body)
	}
	return out, rows.Err()
}

// encodeRows lays out numbers of rows, which grow.
func encodeRows(rows []int64) []byte {
	b := make([]byte, 0, 2*len(rows)+2)
	last := int64(0)
	for _, n := range rows {
		b = binary.AppendUvarint(b, uint64(n-last))
		last = n
	}
	return b
}

func decodeRows(b []byte) (rows []int64, err error) {
	last := int64(0)
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errors.New("its list of rows ends within a number")
		}
		last += int64(n)
		rows, b = append(rows, last), b[size:]
	}
	return rows, nil
}
