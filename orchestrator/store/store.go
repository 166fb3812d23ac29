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
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/url"
	"os"
	"slices"
	"sync"

	"modernc.org/sqlite" // also the driver "sqlite", without cgo
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/trajectory"
)

// File is the name of the store in a run folder.
const File = "store.db"

// schemaVersion is the newest migration's. A store of a newer version is refused, an older one is migrated.
const schemaVersion = 3

// migrations[i] brings a store from version i to i+1.
var migrations = []string{`
CREATE TABLE tasks (id TEXT NOT NULL, phase TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (id, phase)) WITHOUT ROWID;
CREATE TABLE trajectories (
  id TEXT PRIMARY KEY, phase TEXT NOT NULL, step INTEGER NOT NULL, task_id TEXT NOT NULL, json TEXT NOT NULL
);
CREATE INDEX trajectories_by_step ON trajectories (phase, step);
CREATE TABLE samples (
  trajectory_id TEXT NOT NULL REFERENCES trajectories (id) ON DELETE CASCADE, idx INTEGER NOT NULL,
  token_ids BLOB NOT NULL, response_mask BLOB NOT NULL, sampling_logprobs BLOB NOT NULL, policy_version BLOB NOT NULL,
  PRIMARY KEY (trajectory_id, idx)
) WITHOUT ROWID;
CREATE TABLE updates (
  trajectory_id TEXT NOT NULL, idx INTEGER NOT NULL, step INTEGER NOT NULL, old_logprobs BLOB, advantages BLOB,
  PRIMARY KEY (trajectory_id, idx, step)
) WITHOUT ROWID;
CREATE TABLE steps (step INTEGER PRIMARY KEY, json TEXT NOT NULL);
`, `
ALTER TABLE trajectories ADD COLUMN turns BLOB; -- rows of the table turns; NULL: written by version 1, the tokens are in samples
ALTER TABLE trajectories ADD COLUMN crc INTEGER; -- of json
CREATE TABLE turns (n INTEGER PRIMARY KEY, body BLOB NOT NULL); -- see encode.go
CREATE TABLE events (
  n INTEGER PRIMARY KEY, kind TEXT NOT NULL, phase TEXT NOT NULL, step INTEGER NOT NULL, grp INTEGER NOT NULL, json TEXT NOT NULL, crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX one_admission ON events (phase, step, grp) WHERE kind = 'admit';
CREATE UNIQUE INDEX one_batch ON events (step) WHERE kind = 'batch';
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE evaluations (name TEXT NOT NULL, step INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (name, step)) WITHOUT ROWID;
`, `
ALTER TABLE trajectories ADD COLUMN branch TEXT NOT NULL DEFAULT ''; -- these three repeat what json says, to be asked for
ALTER TABLE trajectories ADD COLUMN origin TEXT NOT NULL DEFAULT ''; -- of its error
ALTER TABLE trajectories ADD COLUMN failure TEXT NOT NULL DEFAULT ''; -- whose doing the error is
ALTER TABLE events ADD COLUMN turn INTEGER NOT NULL DEFAULT 0; -- the rows of turns before this one were there when it came
UPDATE trajectories SET origin = json_extract(json, '$.err_origin'), failure = 'infrastructure'
  WHERE CASE WHEN json_valid(json) THEN json_extract(json, '$.err_origin') END <> '';
UPDATE events SET turn = coalesce(known.turn, 0) FROM (
  SELECT n, max(CASE WHEN kind = 'admit' AND json_valid(json) THEN json_extract(json, '$.turn') END) OVER (ORDER BY n) AS turn FROM events
) AS known WHERE known.n = events.n;
`}

// Update is what an optimizer step adds to a sample: [T] slices, 0 off the response mask.
type Update struct {
	TrajectoryID string
	Sample, Step int
	OldLogprobs  []float32
	Advantages   []float32
}

// Store is one open file.
type Store struct {
	db      *sql.DB
	path    string
	version int     // of the schema
	writer  *writer // nil: open for reading
	once    sync.Once

	mu         sync.Mutex
	unfinished map[string]*mark         // trajectories that have turns and no end yet
	open       map[GroupRef][]Admission // admitted groups that are not trained or dropped,
	tasks      map[taskKey]bool         // that are stored
}

type taskKey struct{ phase, id string }

// Open opens or makes the file and brings it to the current version.
func Open(path string) (*Store, error) {
	db, err := connect(path, "rwc")
	if err != nil {
		return nil, err
	}
	if err := migrate(db, path); err != nil {
		db.Close()
		return nil, err
	}
	s := &Store{db: db, path: path, version: schemaVersion, unfinished: map[string]*mark{}, open: map[GroupRef][]Admission{}, tasks: map[taskKey]bool{}}
	if s.writer, err = startWriter(db); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", path, err), db.Close())
	}
	return s, nil
}

// OpenReader opens an existing file for reading.
func OpenReader(path string) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: %w; name a run folder that holds a store.db", err)
	}
	db, err := connect(path, "ro")
	if err != nil {
		return nil, err
	}
	version, err := versionOf(db, path)
	if err == nil && (version < 1 || version > schemaVersion) {
		err = fmt.Errorf("store: %s has version %d, this program reads versions 1 to %d", path, version, schemaVersion)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return &Store{db: db, path: path, version: version}, nil
}

func connect(path, mode string) (*sql.DB, error) {
	query := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}
	if mode == "ro" {
		query["_pragma"] = []string{"busy_timeout(10000)"}
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	return db, nil
}

func versionOf(db *sql.DB, path string) (int, error) {
	var version int
	if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return 0, fmt.Errorf("store: %s cannot be read as a store: %w; move it away and start the run anew, or restore it", path, err)
	}
	return version, nil
}

func migrate(db *sql.DB, path string) error {
	version, err := versionOf(db, path)
	if err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("store: %s was written by a newer program (version %d, this one knows %d); update agentfly", path, version, schemaVersion)
	}
	for ; version < schemaVersion; version++ {
		tx, err := db.Begin()
		if err != nil {
			return fmt.Errorf("store: %s: %w", path, err)
		}
		if _, err = tx.Exec(migrations[version] + fmt.Sprintf("PRAGMA user_version = %d;", version+1)); err == nil {
			err = tx.Commit()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("store: %s: migration to version %d: %w", path, version+1, err), ignoreDone(tx.Rollback()))
		}
	}
	return nil
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Close commits what was added and closes the file. It may be called again.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		if s.writer != nil {
			err = s.writer.close()
		}
		err = errors.Join(err, s.db.Close())
	})
	return err
}

// add returns when what apply writes is durable.
func (s *Store) add(ctx context.Context, what string, apply func(w *writer) error) error {
	defer watchdog.Enter(ctx, "store", what).Leave()
	err := ctx.Err()
	switch {
	case err != nil:
	case s.writer == nil:
		err = errors.New("the store was opened for reading")
	default:
		err = s.writer.add(apply)
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", what, s.explain(err))
	}
	return nil
}

// explain says what to do about an error of the file.
func (s *Store) explain(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%s: %w; free some space on its disk, then continue the run with --resume", s.path, err)
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%s: %w; make the file and its folder writable, then continue the run with --resume", s.path, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s: %w; restore the file from a copy, or begin a new run", s.path, err)
	}
	return fmt.Errorf("%s: %w", s.path, err)
}

// AddTurn stores what a trajectory grew by since the last call: its new turns and the tokens before their ends, and what was posted for it.
func (s *Store) AddTurn(ctx context.Context, t *trajectory.Trajectory) error {
	m := s.markOf(t.ID)
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
		s.mu.Lock()
		s.unfinished[t.ID] = &m
		s.mu.Unlock()
	}
	return err
}

// Restart makes a trajectory without an end begin anew: its next turn replaces those that are stored.
func (s *Store) Restart(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unfinished, id)
}

// markOf copies how much of a trajectory is stored.
func (s *Store) markOf(id string) mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.unfinished[id]
	if m == nil {
		return mark{}
	}
	return mark{m.turns, m.posts, slices.Clone(m.lens), slices.Clip(m.rows)}
}

// holds tells that a trajectory has all that is stored of it.
func (m mark) holds(t *trajectory.Trajectory) error {
	switch {
	case m.turns > len(t.Turns):
		return fmt.Errorf("store: trajectory %s: it has %d turns, and %d are stored", t.ID, len(t.Turns), m.turns)
	case m.posts > len(t.Posted):
		return fmt.Errorf("store: trajectory %s: %d things were posted for it, and %d are stored", t.ID, len(t.Posted), m.posts)
	}
	return nil
}

// addRow appends a row of turns.
func (w *writer) addRow(body []byte) (int64, error) {
	n := w.turn
	w.turn++
	return n, w.exec("INSERT INTO turns VALUES (?, ?)", n, body)
}

// AddTrajectory stores the end of a trajectory, with all of it that is not stored yet, and its task; one of the same id is
// replaced.
func (s *Store) AddTrajectory(ctx context.Context, phase string, task trajectory.Task, t *trajectory.Trajectory) error {
	head := *t
	head.Turns, head.Posted = nil, nil // their rows hold them
	body, err := json.Marshal(&head)
	if err != nil {
		return fmt.Errorf("store: trajectory %s: %w", t.ID, err)
	}
	taskBody, err := s.newTask(phase, task)
	if err != nil {
		return err
	}
	m := s.markOf(t.ID)
	if err := m.holds(t); err != nil {
		return err
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
		s.mu.Lock()
		delete(s.unfinished, t.ID)
		s.tasks[taskKey{phase, task.ID}] = true
		s.mu.Unlock()
	}
	return err
}

// insertTrajectory replaces without REPLACE, for which SQLite would keep a journal of its own in every statement.
const insertTrajectory = `INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
	phase = excluded.phase, step = excluded.step, task_id = excluded.task_id, json = excluded.json, turns = excluded.turns, crc = excluded.crc,
	branch = excluded.branch, origin = excluded.origin, failure = excluded.failure`

// newTask is the JSON of a task that this process did not store yet; nil: it did.
func (s *Store) newTask(phase string, task trajectory.Task) ([]byte, error) {
	s.mu.Lock()
	stored := s.tasks[taskKey{phase, task.ID}]
	s.mu.Unlock()
	if stored {
		return nil, nil
	}
	body, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("store: task %s: %w", task.ID, err)
	}
	return body, nil
}

func checksum(body []byte) int64 { return int64(crc32.Checksum(body, castagnoli)) }

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
		of              Update
		old, advantages []byte
	}
	var rows []encoded
	for _, u := range updates {
		rows = append(rows, encoded{u, blob(u.OldLogprobs), blob(u.Advantages)})
	}
	return s.add(ctx, fmt.Sprintf("step %d", step+1), func(w *writer) error {
		for _, r := range rows {
			if err := w.exec("INSERT OR REPLACE INTO updates VALUES (?, ?, ?, ?, ?)", r.of.TrajectoryID, int64(r.of.Sample), int64(r.of.Step), r.old, r.advantages); err != nil {
				return err
			}
		}
		if err := w.exec("INSERT OR REPLACE INTO steps VALUES (?, ?)", int64(step), string(body)); err != nil {
			return err
		}
		return w.addEvent(kindStep, "", step, 0, struct{}{})
	})
}

// Truncate forgets steps >= step and their trajectories, those of evaluations aside: a resumed run makes them again.
func (s *Store) Truncate(ctx context.Context, step int) error {
	return s.add(ctx, "truncate", func(w *writer) error {
		for _, q := range []string{"DELETE FROM trajectories WHERE phase NOT LIKE 'eval-%' AND step >= ?", "DELETE FROM updates WHERE step >= ?", "DELETE FROM steps WHERE step >= ?"} {
			if err := w.exec(q, int64(step)); err != nil {
				return err
			}
		}
		return w.addEvent(kindForget, "", step, 0, struct{}{})
	})
}

// blob lays floats out little-endian; never nil.
func blob(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
