package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// File is the name of the store in a run folder.
const File = "store.db"

// schemaVersion is the newest migration's. A store of a newer version is refused, an older one is migrated.
const schemaVersion = 4

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
`, `
ALTER TABLE updates ADD COLUMN entropy BLOB; -- NULL: an older program trained the sample
`}

// file is an open file with the version of its schema.
type file struct {
	db      *sql.DB
	path    string
	version int
	then    string // what to do once a disk without room has some
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

// versionOf reads the version of a file's schema; then is what to do once a disk without room has some.
func versionOf(db *sql.DB, path, then string) (int, error) {
	var version int
	err := db.QueryRow("PRAGMA user_version").Scan(&version)
	switch {
	case err == nil:
		return version, nil
	case damaged(err):
		return 0, fmt.Errorf("store: %s cannot be read as a store: %w; move it away and start the run anew, or restore it", path, err)
	}
	return 0, fmt.Errorf("store: %s: %w%s", path, err, remedy(err, then))
}

func migrate(db *sql.DB, path, then string) error {
	version, err := versionOf(db, path, then)
	if err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("store: %s was written by a newer program (version %d, this one knows %d); update agentfly", path, version, schemaVersion)
	}
	if version == schemaVersion {
		return nil
	}
	tx, err := db.Begin() // one, so that no reader finds a new store half made
	if err != nil {
		return fmt.Errorf("store: %s: %w%s", path, err, remedy(err, then))
	}
	for ; version < schemaVersion && err == nil; version++ {
		_, err = tx.Exec(migrations[version] + fmt.Sprintf("PRAGMA user_version = %d;", version+1))
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("store: %s: migration to version %d: %w%s", path, version, err, remedy(err, then)), ignoreDone(tx.Rollback()))
	}
	return nil
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// How a run goes on whose store can be written again, and what else needs a store; and what a full disk needs before.
const (
	resume    = "continue the run with --resume"
	again     = "try again"
	freeSpace = "; free some space on its disk, then "

	// FreeSpace stands behind an error of a disk without room for a file of the run.
	FreeSpace = freeSpace + resume
)

// DiskFull tells whether an error is that of a disk without room. The index of SQLite's log, which readers make too, has a code of its own.
func DiskFull(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}

// damaged tells whether an error says that the file is no store any more.
func damaged(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

// errDamaged says that a row is not what was written.
var errDamaged = errors.New("is damaged")

// Damaged tells whether an error says that what was written is changed or lost. Any other error is one of reading, which may succeed later.
func Damaged(err error) bool { return errors.Is(err, errDamaged) || damaged(err) }

// passing tells whether an error of reading a row says nothing about the row.
func passing(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && !damaged(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// remedy is what to do about an error of the file, to stand behind it, and then; "": nobody knows.
func remedy(err error, then string) string {
	var e *sqlite.Error
	switch {
	case DiskFull(err):
		return freeSpace + then
	case errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_READONLY:
		return "; make the file and its folder writable, then " + then
	case damaged(err):
		return "; restore the file from a copy, or begin a new run"
	}
	return ""
}

// explain says what to do about an error of the file.
func (f *file) explain(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s: %w%s", f.path, err, remedy(err, f.then))
}

// turnColumns are the columns of a trajectory, in the table of that name, that say where its turns are; version 1 had none.
func (f *file) turnColumns(table string) string {
	if f.version < 2 {
		return "NULL, NULL"
	}
	return table + ".turns, " + table + ".crc"
}

// entropyColumn is the column of updates with the entropy of tokens; the versions before 4 had none.
func (f *file) entropyColumn() string {
	if f.version < 4 {
		return "NULL"
	}
	return "entropy"
}

// each calls f for the rows of a query: a number and a text.
func (f *file) each(ctx context.Context, query string, do func(n int, body []byte) error) error {
	rows, err := f.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("store: %s: %w", f.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var body []byte
		if err = rows.Scan(&n, &body); err == nil {
			err = do(n, body)
		}
		if err != nil {
			return fmt.Errorf("store: %s: %w", f.path, err)
		}
	}
	return rows.Err()
}

// events calls do for every event in order.
func (f *file) events(ctx context.Context, do func(kind, phase string, ref GroupRef, turn int64, body []byte) error) error {
	turn := "turn"
	if f.version < 3 { // which did not say it
		turn = "0"
	}
	rows, err := f.db.QueryContext(ctx, "SELECT n, kind, phase, step, grp, json, crc, "+turn+" FROM events ORDER BY n")
	if err != nil {
		return err
	}
	defer rows.Close()
	for want := int64(1); rows.Next(); want++ {
		var n, crc, turn int64
		var kind, phase string
		var ref GroupRef
		var body []byte
		if err := rows.Scan(&n, &kind, &phase, &ref.Step, &ref.Group, &body, &crc, &turn); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("event %d is missing", want)
		}
		if checksum(body) != crc {
			return fmt.Errorf("event %d is damaged: its checksum is wrong", n)
		}
		if err := do(kind, phase, ref, turn, body); err != nil {
			return fmt.Errorf("event %d is damaged: %w", n, err)
		}
	}
	return rows.Err()
}
