package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Reader reads a store, also while a run writes to it, in another process too.
type Reader struct {
	file         *file
	trajectories trajectories
}

func newReader(f *file) *Reader { return &Reader{f, trajectories{f}} }

// OpenReader opens an existing file for reading.
func OpenReader(path string) (*Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w; name a run folder that holds a store.db", err)
	}
	db, err := connect(path, "ro")
	if err != nil {
		return nil, err
	}
	version, err := versionOf(db, path, again)
	if err == nil && (version < 1 || version > schemaVersion) {
		err = fmt.Errorf("store: %s has version %d, this program reads versions 1 to %d", path, version, schemaVersion)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return newReader(&file{db, path, version, again}), nil
}

// Close closes the file. It may be called again.
func (r *Reader) Close() error { return r.file.db.Close() }

// Select calls f for the trajectories of a selection in the order of phase, step and id (see Selection.Numbered). f may read the store.
func (r *Reader) Select(ctx context.Context, q Selection, f func(Record) error) error {
	where, args := q.where()
	rows, err := r.file.db.QueryContext(ctx, "SELECT t.phase, t.id, t.json, "+r.file.turnColumns("t")+`, k.json FROM trajectories t
		LEFT JOIN tasks k ON k.id = t.task_id AND k.phase = t.phase WHERE `+where+" ORDER BY "+q.order(), args...)
	if err != nil {
		return fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		one, err := r.trajectories.record(rows)
		switch {
		case q.Damaged != nil && Damaged(err):
			q.Damaged(err)
			continue
		case err != nil:
			return fmt.Errorf("store: %w", err)
		}
		if err := f(one); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	return nil
}

// Phases are those of the stored trajectories, in order.
func (r *Reader) Phases(ctx context.Context) (out []string, err error) {
	rows, err := r.file.db.QueryContext(ctx, "SELECT DISTINCT phase FROM trajectories ORDER BY phase")
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var phase string
		if err := rows.Scan(&phase); err != nil {
			return nil, fmt.Errorf("store: %s: %w", r.file.path, err)
		}
		out = append(out, phase)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	return out, nil
}

// Record returns one stored trajectory with its task and what updates added; nil: there is none.
func (r *Reader) Record(ctx context.Context, id string) (found *Record, err error) {
	err = r.Select(ctx, Selection{ID: id}, func(one Record) error {
		found = &one
		return nil
	})
	return found, err
}

// Trajectory returns a trajectory that has its end.
func (r *Reader) Trajectory(ctx context.Context, id string) (*trajectory.Trajectory, error) {
	t, err := r.trajectories.finished(ctx, id)
	if err == nil && t == nil {
		err = fmt.Errorf("trajectory %s is missing", id)
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	return t, nil
}

// Scores calls f for the trajectories of all evaluations, without reading their turns: an evaluation's reward is all that a trajectory was paid.
func (r *Reader) Scores(ctx context.Context, f func(Score) error) error {
	rows, err := r.file.db.QueryContext(ctx, `SELECT t.phase, t.step, t.task_id, k.json, json_extract(t.json, '$.reward'), json_extract(t.json, '$.stop_reason'), coalesce(json_extract(t.json, '$.err'), ''), coalesce(json_extract(t.json, '$.unscored'), 0)
		FROM trajectories t LEFT JOIN tasks k ON k.id = t.task_id AND k.phase = t.phase
		WHERE substr(t.phase, 1, 5) = 'eval-' AND json_valid(t.json) ORDER BY t.phase, t.step, t.id`)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one Score
		var task []byte
		var reward sql.NullFloat64
		var stop, failed string
		if err := rows.Scan(&one.Phase, &one.Step, &one.Task, &task, &reward, &stop, &failed, &one.Unscored); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		one.TaskJSON, one.Reward, one.StopReason, one.Failed = task, reward.Float64, trajectory.StopReason(stop), failed != ""
		if err := f(one); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// EachNewest calls f for every stored trajectory, the one that was stored last first, without what updates added. A damaged one comes as
// an error that names it, and those before it follow. It is what reads a whole store fast: two statements, each prepared once.
func (r *Reader) EachNewest(ctx context.Context, f func(phase string, t *trajectory.Trajectory, damaged error) error) error {
	heads, err := r.file.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	defer heads.Close()
	bodies, err := r.file.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	defer bodies.Close()
	turn := r.trajectories.turn
	if r.file.version >= 2 {
		prepared, err := bodies.PrepareContext(ctx, selectTurn)
		if err != nil {
			return fmt.Errorf("store: %s: %w", r.file.path, err)
		}
		defer prepared.Close()
		turn = func(n int64) *sql.Row { return prepared.QueryRowContext(ctx, n) }
	}
	rows, err := heads.QueryContext(ctx, "SELECT phase, id, json, "+r.file.turnColumns("trajectories")+" FROM trajectories ORDER BY rowid DESC")
	if err != nil {
		return fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var phase string
		var row trajectoryRow
		if err := rows.Scan(&phase, &row.id, &row.body, &row.turns, &row.crc); err != nil {
			return fmt.Errorf("store: %s: %w", r.file.path, err)
		}
		t, err := r.trajectories.join(row, turn)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !Damaged(err) {
			return fmt.Errorf("store: %s: %w", r.file.path, err)
		}
		if err := f(phase, t, err); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Holds tells whether anything of a phase was begun.
func (r *Reader) Holds(ctx context.Context, phase string) (held bool, err error) {
	query, args := "SELECT EXISTS (SELECT 1 FROM trajectories WHERE phase = ?)", []any{phase}
	if r.file.version >= 2 { // version 1 kept no log
		query, args = query+" OR EXISTS (SELECT 1 FROM events WHERE phase = ?)", append(args, phase)
	}
	if err := r.file.db.QueryRowContext(ctx, query, args...).Scan(&held); err != nil {
		return false, fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	return held, nil
}

// Groups reads groups of a batch with their finished trajectories, and the greedy one where there is one.
func (r *Reader) Groups(ctx context.Context, refs []GroupRef, greedy string) ([]trajectory.Group, error) {
	var out []trajectory.Group
	for _, ref := range refs {
		g, err := r.trajectories.group(ctx, ref, greedy)
		if err != nil && ctx.Err() != nil { // nothing is wrong with the file
			return nil, fmt.Errorf("store: %s: %s: %w", r.file.path, ref, context.Cause(ctx))
		}
		if err != nil {
			return nil, fmt.Errorf("store: %s: %s: %w; restore the file from a copy", r.file.path, ref, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// Recover reads what the log holds beyond a step.
func (r *Reader) Recover(ctx context.Context, step int) (*Recovery, error) {
	found, _, err := recoverLog(ctx, r.trajectories, step)
	return found, err
}

// EachTask calls f for every stored task.
func (r *Reader) EachTask(ctx context.Context, f func(trajectory.Task)) error {
	return r.file.each(ctx, "SELECT 0, json FROM tasks", func(_ int, body []byte) error {
		task, err := decodeTask(body)
		if err == nil {
			f(task)
		}
		return nil // a damaged task is told where it is looked at
	})
}

// EachBatch calls f for what each step trained on, in order.
func (r *Reader) EachBatch(ctx context.Context, f func(Batch)) error {
	if r.file.version < 2 {
		return nil
	}
	return r.file.each(ctx, "SELECT step, json FROM events WHERE kind = '"+kindBatch+"' ORDER BY step", func(n int, body []byte) error {
		b := Batch{Step: n}
		if err := json.Unmarshal(body, &b); err != nil {
			return fmt.Errorf("batch of step %d: %w", n+1, err)
		}
		f(b)
		return nil
	})
}

// EachDrop calls f for each group that will not be trained, in the order in which that was known.
func (r *Reader) EachDrop(ctx context.Context, f func(GroupRef)) error {
	if r.file.version < 2 {
		return nil
	}
	return r.file.each(ctx, "SELECT step, grp FROM events WHERE kind = '"+kindDrop+"' ORDER BY n", func(step int, group []byte) error {
		n, err := strconv.Atoi(string(group))
		f(GroupRef{step, n})
		return err
	})
}

// EachStep calls f for the metrics of each stored step, in order.
func (r *Reader) EachStep(ctx context.Context, f func(step int, metrics map[string]float64)) error {
	names := metricNames{}
	return r.file.each(ctx, "SELECT step, json FROM steps ORDER BY step", func(n int, body []byte) error {
		m, err := names.decode(body)
		if err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
		f(n, m)
		return nil
	})
}

// Steps returns the metrics of the stored steps in order.
func (r *Reader) Steps() (out []map[string]float64, err error) {
	err = r.EachStep(context.Background(), func(_ int, metrics map[string]float64) { out = append(out, metrics) })
	return out, err
}

// Progress is how many steps are stored, and the metrics of the last one; nil: there is none.
func (r *Reader) Progress(ctx context.Context) (steps int, last map[string]float64, err error) {
	err = r.file.each(ctx, "SELECT step, json FROM steps ORDER BY step DESC LIMIT 1", func(n int, body []byte) error {
		steps = n + 1
		return json.Unmarshal(body, &last)
	})
	return steps, last, err
}

// Began is when the run began, as Begin stored it: a time that a resumed run keeps. Of a run that an older program began, which stored none, it is
// when the first trajectory was begun. The zero time: it is not known.
func (r *Reader) Began(ctx context.Context) (began time.Time, err error) {
	fact, err := r.Fact(beganFact)
	if err != nil {
		return began, err
	}
	if fact != "" {
		return time.Parse(time.RFC3339Nano, fact)
	}
	err = r.file.each(ctx, "SELECT rowid, json FROM trajectories ORDER BY rowid LIMIT 1", func(_ int, body []byte) error {
		first := struct{ Started time.Time }{}
		if json.Unmarshal(body, &first) == nil { // a damaged row is told of where it is read
			began = first.Started
		}
		return nil
	})
	return began, err
}

// ID is the id that Begin stored with the run: one that a resumed run keeps. A run that an older program began has none, "".
func (r *Reader) ID() (string, error) { return r.Fact(idFact) }

// Evaluations returns the results that AddEvaluation stored, in the order of steps.
func (r *Reader) Evaluations() (out []json.RawMessage, err error) {
	if r.file.version < 2 { // it stored none
		return nil, nil
	}
	err = r.file.each(context.Background(), "SELECT step, json FROM evaluations ORDER BY step, name", func(_ int, body []byte) error {
		out = append(out, body)
		return nil
	})
	return out, err
}

// Fact returns what SetFact stored; "" is nothing.
func (r *Reader) Fact(name string) (string, error) {
	if r.file.version < 2 {
		return "", nil
	}
	var value string
	err := r.file.db.QueryRow("SELECT value FROM facts WHERE name = ?", name).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("store: %s: %w", name, err)
	}
	return value, nil
}

// End is the place behind all that is stored now: Tail goes on there.
func (r *Reader) End(ctx context.Context) (Cursor, error) {
	var c Cursor
	if r.file.version < 2 {
		return c, nil
	}
	err := r.file.db.QueryRowContext(ctx, "SELECT (SELECT coalesce(max(n), 0) FROM turns), (SELECT coalesce(max(n), 0) FROM events)").Scan(&c.Turn, &c.Event)
	if err != nil {
		return c, fmt.Errorf("store: %s: %w", r.file.path, err)
	}
	return c, nil
}

// ErrNoLog says that a store has nothing for Tail to follow.
var ErrNoLog = errors.New("was written by version 1, which kept no log; continue the run once, and it is kept")

// Tail follows the log from a place on, in the order in which it was written, and waits at its end for more until ctx is done. The run
// may go on meanwhile, in another process, end, be killed and continue. An error (a damaged row, a closed store) is the last that it
// yields. Of what version 2 wrote, a drop or a batch may come before turns that are older.
func (r *Reader) Tail(ctx context.Context, after Cursor) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if r.file.version < 2 {
			yield(Entry{}, fmt.Errorf("store: %s %w", r.file.path, ErrNoLog))
			return
		}
		t := &tail{file: r.file, at: after, yield: yield}
		for {
			more, err := t.page(ctx)
			switch {
			case ctx.Err() != nil || t.stopped:
				return
			case err != nil:
				yield(Entry{Next: t.at}, fmt.Errorf("store: %s: tail: %w", r.file.path, r.file.explain(err)))
				return
			case more:
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(tailPause):
			}
		}
	}
}
