// Package store keeps the trajectories, updates, steps and evaluations of a run in one SQLite file.
//
// It is the log that a run is recovered from: AddTurn stores a turn before the next request is built from it, Admit and AddBatch
// store what becomes of groups before it happens, and Recover gives back what was stored.
//
// One goroutine writes; what arrives while a transaction is being committed goes into the next one (group commit). What adds
// returns when its record is durable. Reading is safe beside it, also from another process.
//
// It does not decide which of the record is used, and when: packages orchestrator/recovery and orchestrator/replay do.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

// Store is a file that is open for writing, by one process.
type Store struct {
	Reader *Reader // what is stored, with what was added so far; Close closes it
	writer *writer
	ledger *ledger
	once   sync.Once
}

// Open opens or makes the file of a run and brings it to the current version.
func Open(path string) (*Store, error) { return open(path, resume) }

// OpenGateway does so for a gateway, which goes on by itself when it begins again.
func OpenGateway(path string) (*Store, error) { return open(path, again) }

// open is Open; then is what to do once a disk without room has some.
func open(path, then string) (*Store, error) {
	db, err := connect(path, "rwc")
	if err != nil {
		return nil, err
	}
	if err := migrate(db, path, then); err != nil {
		db.Close()
		return nil, err
	}
	s := &Store{Reader: newReader(&file{db, path, schemaVersion, then}), ledger: newLedger()}
	if s.writer, err = startWriter(db); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", path, err), db.Close())
	}
	return s, nil
}

// Close commits what was added and closes the file. It may be called again.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() { err = errors.Join(s.writer.close(), s.Reader.Close()) })
	return err
}

// Recover reads the log of a run that goes on at a step: that of its last checkpoint, or 0. What adds goes on from there, so
// it comes before them.
func (s *Store) Recover(ctx context.Context, step int) (*Recovery, error) {
	found, unfinished, err := recoverLog(ctx, s.Reader.trajectories, step)
	if err != nil {
		return nil, err
	}
	s.ledger.recovered(found.Outstanding, unfinished)
	return found, nil
}

// add returns when what apply writes is durable.
func (s *Store) add(ctx context.Context, what string, apply func(w *writer) error) error {
	defer watchdog.Enter(ctx, "store", what).Leave()
	err := ctx.Err()
	if err == nil {
		err = s.writer.add(apply)
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", what, s.Reader.file.explain(err))
	}
	return nil
}

// AddTurn stores what a trajectory grew by since the last call: its new turns and the tokens before their ends, and what was posted for it.
func (s *Store) AddTurn(ctx context.Context, t *trajectory.Trajectory) error {
	m := s.ledger.markOf(t.ID)
	if err := m.holds(t); err != nil {
		return err
	}
	body := encodeRow(t, &m, false)
	if body == nil {
		return fmt.Errorf("store: trajectory %s: it has no turn beyond the %d that are stored", t.ID, m.turns)
	}
	var row int64
	err := s.add(ctx, "trajectory "+t.ID, func(w *writer) (err error) {
		row, err = w.addRow(body)
		return err
	})
	if err == nil {
		m.rows = append(m.rows, row)
		s.ledger.grew(t.ID, &m)
	}
	return err
}

// Restart makes a trajectory without an end begin anew: its next turn replaces those that are stored.
func (s *Store) Restart(id string) { s.ledger.restart(id) }

// AddTrajectory stores the end of a trajectory, with all of it that is not stored yet, and its task; one of the same id is
// replaced. One that failed before it was where its record ends, such as where a process goes on under another job, replaces that.
func (s *Store) AddTrajectory(ctx context.Context, phase string, task trajectory.Task, t *trajectory.Trajectory) error {
	head := *t
	head.Turns, head.Posted = nil, nil // their rows hold them
	body, err := json.Marshal(&head)
	if err != nil {
		return fmt.Errorf("store: trajectory %s: %w", t.ID, err)
	}
	taskBody, err := s.ledger.newTask(phase, task)
	if err != nil {
		return err
	}
	m := s.ledger.markOf(t.ID)
	if err := m.holds(t); err != nil {
		if !t.Failed() {
			return err
		}
		m = mark{}
	}
	last := encodeRow(t, &m, true)
	err = s.add(ctx, "trajectory "+t.ID, func(w *writer) error {
		row, err := w.addRow(last)
		if err != nil {
			return err
		}
		rows := append(m.rows, row)
		if taskBody != nil {
			if err := w.exec("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", task.ID, phase, string(taskBody)); err != nil {
				return err
			}
		}
		return w.exec(insertTrajectory, t.ID, phase, int64(t.Step), t.TaskID, string(body), encodeRows(rows), checksum(body),
			string(t.Branch), string(t.ErrOrigin), string(t.Failure))
	})
	if err == nil {
		s.ledger.ended(phase, task.ID, t.ID)
	}
	return err
}

// insertTrajectory replaces without REPLACE, for which SQLite would keep a journal of its own in every statement.
const insertTrajectory = `INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
	phase = excluded.phase, step = excluded.step, task_id = excluded.task_id, json = excluded.json, turns = excluded.turns, crc = excluded.crc,
	branch = excluded.branch, origin = excluded.origin, failure = excluded.failure`

// Admit stores that the sampling of groups begins; all of them or none. A group is admitted once.
func (s *Store) Admit(ctx context.Context, all ...Admission) error {
	tasks := make([][]byte, len(all))
	for i, a := range all {
		var err error
		if tasks[i], err = s.ledger.newTask(a.Phase, a.Task); err != nil {
			return err
		}
		if s.ledger.isOpen(a.Phase, a.ref()) {
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
			if a.RetryOf != nil && s.ledger.isOpen(Train, *a.RetryOf) {
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
	s.ledger.admitted(all...)
	return nil
}

// AddBatch stores what a step trains on, before it does. Every group is admitted, and trained or dropped once.
func (s *Store) AddBatch(ctx context.Context, b Batch) error {
	seen := map[GroupRef]bool{}
	for _, ref := range b.Groups {
		if seen[ref] || !s.ledger.isOpen(Train, ref) {
			return fmt.Errorf("store: batch of step %d: %s is not admitted, or it was trained or dropped already", b.Step+1, ref)
		}
		seen[ref] = true
	}
	var drop []GroupRef
	for _, ref := range b.Others {
		if !seen[ref] && s.ledger.isOpen(Train, ref) {
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
		s.ledger.settle(b.Groups...)
		s.ledger.settle(drop...)
	}
	return err
}

// Update is what an optimizer step adds to a sample: [T] slices, 0 off the response mask.
type Update struct {
	TrajectoryID string
	Sample, Step int
	OldLogprobs  []float32
	Advantages   []float32
	Entropy      []float32 // nats, of the trainer's distribution at the job's temperature before the update; empty: an older program recorded the step
}

// AddStep stores the updates and the metrics of a finished step together.
func (s *Store) AddStep(ctx context.Context, step int, metrics map[string]float64, updates []Update) error {
	finite := map[string]any{}
	for k, v := range metrics {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite[k] = v
		}
	}
	body, err := json.Marshal(finite)
	if err != nil {
		return fmt.Errorf("store: step %d: %w", step+1, err)
	}
	type encoded struct {
		of                       Update
		old, advantages, entropy []byte
	}
	var rows []encoded
	for _, u := range updates {
		rows = append(rows, encoded{u, blob(u.OldLogprobs), blob(u.Advantages), blob(u.Entropy)})
	}
	return s.add(ctx, fmt.Sprintf("step %d", step+1), func(w *writer) error {
		for _, r := range rows {
			if err := w.exec("INSERT OR REPLACE INTO updates VALUES (?, ?, ?, ?, ?, ?)", r.of.TrajectoryID, int64(r.of.Sample), int64(r.of.Step), r.old, r.advantages, r.entropy); err != nil {
				return err
			}
		}
		if err := w.exec("INSERT OR REPLACE INTO steps VALUES (?, ?)", int64(step), string(body)); err != nil {
			return err
		}
		return w.addEvent(kindStep, "", step, 0, struct{}{})
	})
}

// Truncate forgets all but the first so many steps: their trajectories, those of evaluations aside, and the results of evaluations behind them.
// A resumed run makes them again.
func (s *Store) Truncate(ctx context.Context, step int) error {
	return s.add(ctx, "truncate", func(w *writer) error {
		for _, q := range []string{
			"DELETE FROM trajectories WHERE phase NOT LIKE 'eval-%' AND step >= ?", "DELETE FROM updates WHERE step >= ?", "DELETE FROM steps WHERE step >= ?",
			"DELETE FROM evaluations WHERE step > ?", // it counts the steps before it
		} {
			if err := w.exec(q, int64(step)); err != nil {
				return err
			}
		}
		return w.addEvent(kindForget, "", step, 0, struct{}{})
	})
}

// RemoveTrajectories removes those of a phase at a step, which is sampled anew.
func (s *Store) RemoveTrajectories(ctx context.Context, phase string, step int) error {
	return s.add(ctx, fmt.Sprintf("remove %s at step %d", phase, step), func(w *writer) error {
		return w.exec("DELETE FROM trajectories WHERE phase = ? AND step = ?", phase, int64(step))
	})
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

// Facts that Begin stores.
const (
	beganFact = "began" // when the run began
	idFact    = "id"    // tells the run from all others
)

// Begin stores that a run begins at a time, and an id that no other run has, unless that was stored before.
func (s *Store) Begin(ctx context.Context, at time.Time, id string) error {
	began, err := s.Reader.Fact(beganFact)
	if err != nil || began != "" {
		return err
	}
	return s.SetFacts(ctx, Fact{beganFact, at.UTC().Format(time.RFC3339Nano)}, Fact{idFact, id})
}

// SetFact stores what is true of the whole run, such as where its job file is.
func (s *Store) SetFact(ctx context.Context, name, value string) error {
	return s.SetFacts(ctx, Fact{name, value})
}

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
