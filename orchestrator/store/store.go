// Package store keeps the trajectories, updates, steps and evaluations of a run in one SQLite file.
//
// One goroutine writes; what arrives while a transaction is being committed goes into the next one (group commit). Add
// returns when its record is durable. Reading is safe beside it, also from another process.
package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"sync"

	"github.com/agentfly/agentfly/trajectory"
	_ "modernc.org/sqlite" // the driver "sqlite", without cgo
)

// schemaVersion is the newest migration's. A store of a newer version is refused, an older one is migrated.
const schemaVersion = 1

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
	db     *sql.DB
	queue  chan write
	closed chan struct{}
	once   sync.Once
	joined sync.WaitGroup
}

type write struct {
	apply func(tx *sql.Tx) error
	done  chan error // buffered
}

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
	s := &Store{db: db, queue: make(chan write), closed: make(chan struct{})}
	s.joined.Go(s.writer)
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
	if err == nil && version != schemaVersion {
		err = fmt.Errorf("store: %s has version %d, this program reads version %d", path, version, schemaVersion)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	s := &Store{db: db, closed: make(chan struct{})}
	close(s.closed) // no writer
	return s, nil
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
		if s.queue != nil {
			close(s.closed)
			s.joined.Wait()
		}
		err = s.db.Close()
	})
	return err
}

func (s *Store) writer() {
	for {
		select {
		case w := <-s.queue:
			s.commit(w)
		case <-s.closed:
			return
		}
	}
}

// commit writes w and everything that waits with it in one transaction. When one of them fails, each is tried alone, so
// that a bad record fails only its own call.
func (s *Store) commit(first write) {
	batch := []write{first}
	for more := true; more && len(batch) < 512; {
		select {
		case w := <-s.queue:
			batch = append(batch, w)
		default:
			more = false
		}
	}
	err := s.transact(batch)
	for _, w := range batch {
		if err != nil && len(batch) > 1 {
			w.done <- s.transact([]write{w})
		} else {
			w.done <- err
		}
	}
}

func (s *Store) transact(batch []write) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	for _, w := range batch {
		if err := w.apply(tx); err != nil {
			return errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}
	return tx.Commit()
}

func (s *Store) add(ctx context.Context, what string, apply func(tx *sql.Tx) error) error {
	w := write{apply, make(chan error, 1)}
	select {
	case s.queue <- w:
	case <-s.closed:
		return fmt.Errorf("store: %s: the store is closed", what)
	case <-ctx.Done():
		return fmt.Errorf("store: %s: %w", what, ctx.Err())
	}
	if err := <-w.done; err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	return nil
}

// AddTrajectory stores a trajectory with its samples and its task; one of the same id is replaced.
func (s *Store) AddTrajectory(ctx context.Context, phase string, task trajectory.Task, t *trajectory.Trajectory) error {
	body, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("store: trajectory %s: %w", t.ID, err)
	}
	taskBody, err := json.Marshal(task)
	if err != nil {
		return fmt.Errorf("store: task %s: %w", task.ID, err)
	}
	return s.add(ctx, "trajectory "+t.ID, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", task.ID, phase, taskBody); err != nil {
			return err
		}
		if _, err := tx.Exec("INSERT OR REPLACE INTO trajectories VALUES (?, ?, ?, ?, ?)", t.ID, phase, t.Step, t.TaskID, body); err != nil {
			return err
		}
		for i, sample := range t.Samples {
			if _, err := tx.Exec("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?)", t.ID, i,
				blob(sample.TokenIDs), blob(sample.ResponseMask), blob(sample.SamplingLogprobs), blob(sample.PolicyVersion)); err != nil {
				return err
			}
		}
		return nil
	})
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
		return fmt.Errorf("store: step %d: %w", step, err)
	}
	return s.add(ctx, fmt.Sprintf("step %d", step), func(tx *sql.Tx) error {
		for _, u := range updates {
			if _, err := tx.Exec("INSERT OR REPLACE INTO updates VALUES (?, ?, ?, ?, ?)", u.TrajectoryID, u.Sample, u.Step, blob(u.OldLogprobs), blob(u.Advantages)); err != nil {
				return err
			}
		}
		_, err := tx.Exec("INSERT OR REPLACE INTO steps VALUES (?, ?)", step, body)
		return err
	})
}

// Truncate forgets steps >= step and their trajectories, those of evaluations aside: a resumed run makes them again.
func (s *Store) Truncate(ctx context.Context, step int) error {
	return s.add(ctx, "truncate", func(tx *sql.Tx) error {
		for _, q := range []string{"DELETE FROM trajectories WHERE phase NOT LIKE 'eval-%' AND step >= ?", "DELETE FROM updates WHERE step >= ?", "DELETE FROM steps WHERE step >= ?"} {
			if _, err := tx.Exec(q, step); err != nil {
				return err
			}
		}
		return nil
	})
}

// blob writes a slice little-endian.
func blob(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		return nil // only of types that are not fixed in size, which no caller has
	}
	return b.Bytes()
}
