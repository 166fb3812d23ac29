package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// smallDisk is a file system of so many bytes.
func smallDisk(t *testing.T, bytes int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprint("size=", bytes)); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// full adds turns of n tokens to a trajectory until the store refuses one, at most so many.
func full(t *testing.T, s *store.Store, n, most int) (tr *trajectory.Trajectory, task trajectory.Task, err error) {
	t.Helper()
	a := admission(0, 0, 1)
	require.NoError(t, s.Admit(ctx, a))
	tr = begin(a, 0)
	for err == nil && len(tr.Turns) < most {
		turn(t, tr, n, 0)
		err = s.AddTurn(ctx, tr)
	}
	return tr, a.Task, err
}

// What was added before the disk was full is there, what was refused is not, and the store goes on once there is room.
func TestAFullDisk(t *testing.T) {
	dir := smallDisk(t, 400<<10)
	path := filepath.Join(dir, "s.db")
	s := open(t, path)
	tr, task, err := full(t, s, 50, 2000)
	require.ErrorContains(t, err, "store: trajectory train-0-0-0: "+path+": ")
	require.ErrorContains(t, err, "; free some space on its disk, then continue the run with --resume")
	require.NotContains(t, err.Error(), "\n")
	turns := len(tr.Turns)
	require.Greater(t, turns, 10)
	require.Error(t, s.AddTurn(ctx, tr))
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m"))
	r, err := s.Recover(ctx, 0)
	require.NoError(t, err)
	require.Len(t, r.Outstanding[0].Partial[0].Turns, turns-1)
	require.NoError(t, s.AddTurn(ctx, tr))
	r, err = s.Recover(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, tr, r.Outstanding[0].Partial[0])

	require.NoError(t, s.Close())
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	s, err = store.Open(path)
	if err == nil {
		err = s.AddTrajectory(ctx, store.Train, task, tr)
		require.NoError(t, s.Close())
	}
	require.Error(t, err)
	require.Contains(t, err.Error(), path)
	require.Equal(t, 1, len(strings.Split(err.Error(), "\n")), err.Error())
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m"))
}

// A gateway has no --resume that it could advise.
func TestAGatewayOnAFullDisk(t *testing.T) {
	path := filepath.Join(smallDisk(t, 400<<10), "s.db")
	s, err := store.OpenGateway(path)
	require.NoError(t, err)
	_, _, err = full(t, s, 50, 2000)
	require.ErrorContains(t, err, "; free some space on its disk, then try again")
	require.NoError(t, s.Close())
}

// The disk fills while the write-ahead log is copied into the file: SQLite does so by itself once the log has a thousand
// pages. What was added before is there, at once and from a copy of the files as a kill leaves them.
func TestTheDiskFillsInACheckpointOfTheLog(t *testing.T) {
	const size = 6 << 20 // the log comes to a bit more than 4 MiB before its first checkpoint, so the file has no room for as much
	dir := smallDisk(t, size)
	path := filepath.Join(dir, "s.db")
	s := open(t, path)
	tr, _, err := full(t, s, 500, 5000)
	require.ErrorContains(t, err, "database or disk is full (13); free some space on its disk, then continue the run with --resume")
	wal, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	require.Greater(t, wal.Size(), int64(1000*4096), "the log was due for its copy")
	whole := len(tr.Turns) - 1
	check := func(s *store.Store) {
		t.Helper()
		r, err := s.Recover(ctx, 0)
		require.NoError(t, err)
		got := r.Outstanding[0].Partial[0]
		require.Len(t, got.Turns, whole)
		require.Equal(t, tr.Turns[:whole], got.Turns)
		require.Equal(t, tr.Samples[0].TokenIDs[:got.Samples[0].Len()], got.Samples[0].TokenIDs)
	}
	check(s)
	killed := filepath.Join(t.TempDir(), "s.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(killed+suffix, data, 0o600))
	}
	check(open(t, killed))
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m"))
	require.NoError(t, s.AddTurn(ctx, tr), "there is room again")
	whole++
	check(s)
}

// A store that is opened while its disk is full is not called damaged: nothing is wrong with it once there is room.
func TestAStoreIsOpenedOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, 400<<10)
	whole, begun, filler := filepath.Join(dir, "s.db"), filepath.Join(dir, "new.db"), filepath.Join(dir, "filler")
	require.NoError(t, open(t, whole).Close())
	require.ErrorIs(t, os.WriteFile(filler, make([]byte, 1<<20), 0o600), syscall.ENOSPC)
	_, err := store.OpenReader(whole)
	require.EqualError(t, err, "store: "+whole+": disk I/O error (4874); free some space on its disk, then try again")
	require.True(t, store.DiskFull(err))
	_, err = store.Open(whole)
	require.EqualError(t, err, "store: "+whole+": disk I/O error (4874); free some space on its disk, then continue the run with --resume")
	_, err = store.Open(begun)
	require.EqualError(t, err, "store: "+begun+": database or disk is full (13); free some space on its disk, then continue the run with --resume")

	_, err = store.OpenGateway(whole)
	require.EqualError(t, err, "store: "+whole+": disk I/O error (4874); free some space on its disk, then try again")

	require.NoError(t, os.WriteFile(filler, make([]byte, 250<<10), 0o600)) // there is room for a part of the migrations
	_, err = store.Open(begun)
	require.ErrorContains(t, err, "store: "+begun+": migration to version ")
	require.ErrorContains(t, err, ": database or disk is full (13); free some space on its disk, then continue the run with --resume")
	require.NoError(t, os.Remove(filler))
	for _, path := range []string{whole, begun} {
		require.NoError(t, open(t, path).Close())
		r, err := store.OpenReader(path)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
}
