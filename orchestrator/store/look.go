package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/trajectory"
)

// End is the place behind all that is stored now: Tail goes on there.
func (s *Store) End(ctx context.Context) (Cursor, error) {
	var c Cursor
	if s.version < 2 {
		return c, nil
	}
	err := s.db.QueryRowContext(ctx, "SELECT (SELECT coalesce(max(n), 0) FROM turns), (SELECT coalesce(max(n), 0) FROM events)").Scan(&c.Turn, &c.Event)
	if err != nil {
		return c, fmt.Errorf("store: %s: %w", s.path, err)
	}
	return c, nil
}

// EachNewest calls f for every stored trajectory, the one that was stored last first, without what updates added. A damaged one comes as
// an error that names it, and those before it follow. It is what reads a whole store fast: two statements, each prepared once.
func (s *Store) EachNewest(ctx context.Context, f func(phase string, t *trajectory.Trajectory, damaged error) error) error {
	heads, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.path, err)
	}
	defer heads.Close()
	bodies, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.path, err)
	}
	defer bodies.Close()
	turns := "turns, crc"
	row := (*sql.Stmt)(nil)
	if s.version < 2 {
		turns = "NULL, NULL"
	} else if row, err = bodies.PrepareContext(ctx, "SELECT body FROM turns WHERE n = ?"); err != nil {
		return fmt.Errorf("store: %s: %w", s.path, err)
	} else {
		defer row.Close()
	}
	rows, err := heads.QueryContext(ctx, "SELECT phase, id, json, "+turns+" FROM trajectories ORDER BY rowid DESC")
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var phase, id string
		var body, numbers []byte
		var crc sql.NullInt64
		if err := rows.Scan(&phase, &id, &body, &numbers, &crc); err != nil {
			return fmt.Errorf("store: %s: %w", s.path, err)
		}
		t, damaged := s.whole(ctx, row, id, body, numbers, crc)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := f(phase, t, damaged); err != nil {
			return err
		}
	}
	return rows.Err()
}

// whole puts a trajectory together, with a prepared statement that reads a row of turns.
func (s *Store) whole(ctx context.Context, row *sql.Stmt, id string, body, numbers []byte, crc sql.NullInt64) (*trajectory.Trajectory, error) {
	if numbers == nil || row == nil { // version 1 wrote it
		return s.trajectory(id, body, numbers, crc)
	}
	damaged := func(err error) error { return fmt.Errorf("trajectory %s is damaged: %w", id, err) }
	if crc.Valid && crc.Int64 != checksum(body) {
		return nil, damaged(errors.New("its checksum is wrong"))
	}
	t := &trajectory.Trajectory{}
	if err := json.Unmarshal(body, t); err != nil {
		return nil, damaged(err)
	}
	list, err := decodeRows(numbers)
	if err != nil {
		return nil, damaged(err)
	}
	for _, n := range list {
		var piece []byte
		if err = row.QueryRowContext(ctx, n).Scan(&piece); err == nil {
			err = grow(t, piece)
		}
		if err != nil {
			return nil, damaged(fmt.Errorf("row %d of turns: %w", n, err))
		}
	}
	if t.Failure == "" {
		t.Failure = t.ErrOrigin.Failure()
	}
	if t.Unpaid {
		t.TakeBack()
	}
	return t, nil
}

// Record returns one stored trajectory with its task and what updates added; nil: there is none.
func (s *Store) Record(ctx context.Context, id string) (*Record, error) {
	turns := "t.turns, t.crc"
	if s.version < 2 {
		turns = "NULL, NULL"
	}
	rows, err := s.db.QueryContext(ctx, "SELECT t.phase, t.id, t.json, "+turns+", k.json FROM trajectories t LEFT JOIN tasks k ON k.id = t.task_id AND k.phase = t.phase WHERE t.id = ?", id)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", s.path, err)
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	r, err := s.record(rows)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &r, rows.Err()
}

// EachStep calls f for the metrics of each stored step, in order.
func (s *Store) EachStep(ctx context.Context, f func(step int, metrics map[string]float64)) error {
	return s.each(ctx, "SELECT step, json FROM steps ORDER BY step", func(n int, body []byte) error {
		m := map[string]float64{}
		if err := json.Unmarshal(body, &m); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
		f(n, m)
		return nil
	})
}

// EachBatch calls f for what each step trained on, in order.
func (s *Store) EachBatch(ctx context.Context, f func(Batch)) error {
	if s.version < 2 {
		return nil
	}
	return s.each(ctx, "SELECT step, json FROM events WHERE kind = '"+kindBatch+"' ORDER BY step", func(n int, body []byte) error {
		b := Batch{Step: n}
		if err := json.Unmarshal(body, &b); err != nil {
			return fmt.Errorf("batch of step %d: %w", n+1, err)
		}
		f(b)
		return nil
	})
}

// Progress is how many steps are stored, and the metrics of the last one; nil: there is none.
func (s *Store) Progress(ctx context.Context) (steps int, last map[string]float64, err error) {
	err = s.each(ctx, "SELECT step, json FROM steps ORDER BY step DESC LIMIT 1", func(n int, body []byte) error {
		steps = n + 1
		return json.Unmarshal(body, &last)
	})
	return steps, last, err
}

// EachTask calls f for every stored task.
func (s *Store) EachTask(ctx context.Context, f func(trajectory.Task)) error {
	return s.each(ctx, "SELECT 0, json FROM tasks", func(_ int, body []byte) error {
		task, err := decodeTask(body)
		if err == nil {
			f(task)
		}
		return nil // a damaged task is told where it is looked at
	})
}

// each calls f for the rows of a query: a number and a text.
func (s *Store) each(ctx context.Context, query string, f func(n int, body []byte) error) error {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var body []byte
		if err = rows.Scan(&n, &body); err == nil {
			err = f(n, body)
		}
		if err != nil {
			return fmt.Errorf("store: %s: %w", s.path, err)
		}
	}
	return rows.Err()
}
