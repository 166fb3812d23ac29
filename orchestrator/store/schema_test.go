package store

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A migration that finds the disk full has the advice of a store that finds it full. A limit of the file's pages stands in for the disk's.
func TestAMigrationOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	db, err := connect(path, "rwc")
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1) // the limit is a connection's
	_, err = db.Exec("PRAGMA max_page_count = 12")
	require.NoError(t, err)
	err = migrate(db, path, resume)
	require.EqualError(t, err, "store: "+path+": migration to version 2: database or disk is full (13); free some space on its disk, then continue the run with --resume")
	require.True(t, DiskFull(err))
}

// Who opens a store while it is made finds none yet, or the whole one: a reader keeps the version that it found.
func TestAStoreIsThereAsAWhole(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "s.db")
		var made atomic.Bool
		found := make(chan int, 1)
		go func() {
			for {
				last := made.Load()
				r, err := OpenReader(path)
				if err == nil {
					found <- r.file.version
					r.Close()
					return
				}
				if last {
					found <- 0
					return
				}
			}
		}()
		s, err := Open(path)
		made.Store(true)
		require.NoError(t, err)
		require.Equal(t, schemaVersion, <-found)
		require.NoError(t, s.Close())
	}
}
