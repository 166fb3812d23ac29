package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// fromScript makes the store of a script.
func fromScript(t testing.TB, script string) string {
	path := filepath.Join(t.TempDir(), "old.db")
	text, err := os.ReadFile(script)
	require.NoError(t, err)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec(string(text))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return path
}

// query returns the rows of a query, each as text.
func query(t testing.TB, path, q string) (out []string) {
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query(q)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		out = append(out, fmt.Sprint(values...))
	}
	require.NoError(t, rows.Err())
	return out
}

// version2 is what testdata/version2.sql holds: a trained trajectory, one that failed, and one without an end.
func version2(t testing.TB) (trained, failed, partial *trajectory.Trajectory) {
	sample := func() *trajectory.Sample {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{5, 300})
		require.NoError(t, s.AppendResponse([]int32{7, 8}, []float32{-0.5, -1.25}, []int32{3, 3}))
		s.AppendObservation([]int32{9})
		return s
	}
	started := time.Unix(1700000000, 0).UTC()
	infrastructure, policy := trajectory.FailureInfrastructure, trajectory.FailurePolicy
	first := trajectory.Turn{
		CompletionStart: 2, CompletionEnd: 4, ObservationEnd: 5, Completion: "héllo", FinishReason: "stop", Seed: 1 << 63, CachedTokens: 1, EngineSeconds: 0.5, ToolSeconds: 2,
		Results: []trajectory.ToolResult{
			{Call: trajectory.ToolCall{ID: "1", Name: "calc", Arguments: []byte(`{"x": 1}`)}, Observation: "2", Failed: true, Duration: -time.Second},
			{},
			{Observation: "late", Failed: true, Cause: trajectory.CauseBroken, Failure: infrastructure, Retries: 2, Duration: time.Minute},
			{Observation: "done", Terminal: true, Cached: true, Info: []byte(`{"hits":3}`)},
		},
	}
	partial = &trajectory.Trajectory{ID: "train-0-1-0", TaskID: "k1", Group: 1, Turns: []trajectory.Turn{first}, Samples: []*trajectory.Sample{sample()}}
	paid := 0.25
	more := first
	more.Results = append(first.Results[:4:4],
		trajectory.ToolResult{Observation: "gone", Failed: true}, // without a cause, as until causes were recorded
		trajectory.ToolResult{Observation: "what?", Failed: true, Cause: trajectory.CauseParse, Failure: policy},
		trajectory.ToolResult{Observation: "stop", Failed: true, Cause: trajectory.CauseInterrupted, Failure: infrastructure})
	whole := sample()
	require.NoError(t, whole.AppendResponse([]int32{1, 2, 70000}, []float32{0, -2, -3}, []int32{3, 4, 4}))
	trained = &trajectory.Trajectory{
		ID: "train-0-0-0", TaskID: "k0", Reward: 0.5, StopReason: trajectory.StopAnswer, Started: started, Samples: []*trajectory.Sample{whole},
		Turns: []trajectory.Turn{more, {CompletionStart: 5, CompletionEnd: 8, ObservationEnd: 8, ParseErrors: 2, FinalAnswer: "4", AnsweredThisTurn: true, Reward: &paid, Anchor: "a", Shared: "b"}},
	}
	failed = &trajectory.Trajectory{
		ID: "train-0-0-1", TaskID: "k0", Index: 1, StopReason: trajectory.StopError, Err: "orchestrator: train-0-0-1 turn 0: gone",
		ErrOrigin: trajectory.OriginEngine, Failure: infrastructure, Started: started, Samples: []*trajectory.Sample{{}},
	}
	failed.Samples[0].AppendObservation([]int32{5, 300})
	return trained, failed, partial
}

// recoverable is a Store or a Reader.
type recoverable interface {
	Recover(ctx context.Context, step int) (*store.Recovery, error)
}

// holdsVersion2 requires what the program of version 2 wrote, however it is read.
func holdsVersion2(t testing.TB, s *store.Reader, log recoverable) {
	trained, failed, partial := version2(t)
	var got []*trajectory.Trajectory
	require.NoError(t, s.Select(ctx, store.Selection{}, func(r store.Record) error {
		got = append(got, r.Trajectory)
		require.Equal(t, "train", r.Phase)
		require.Equal(t, "4", r.Task.Fields["answer"])
		return nil
	}))
	require.Equal(t, []*trajectory.Trajectory{trained, failed}, got)
	r, err := log.Recover(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 5, r.Events)
	require.Equal(t, []store.Batch{{Groups: []store.GroupRef{{}}, Dealt: []int{3}}}, r.Batches)
	require.Len(t, r.Outstanding, 1)
	require.True(t, r.Outstanding[0].Left)
	require.Equal(t, []*trajectory.Trajectory{partial, nil}, r.Outstanding[0].Partial)
	steps, err := s.Steps()
	require.NoError(t, err)
	require.Equal(t, []map[string]float64{{"reward/mean": 0.5}}, steps)
	evaluations, err := s.Evaluations()
	require.NoError(t, err)
	require.Equal(t, `{"tasks":3}`, string(evaluations[0]))
	fact, err := s.Fact("job")
	require.NoError(t, err)
	require.Equal(t, "job.yaml", fact)
}

// A store of version 2 is read as it is, and goes on as version 4: rows of both formats beside each other.
func TestAStoreOfVersionTwoIsMigrated(t *testing.T) {
	path := fromScript(t, "testdata/version2.sql")
	reader, err := store.OpenReader(path)
	require.NoError(t, err)
	holdsVersion2(t, reader, reader)
	require.NoError(t, reader.Close())
	require.Equal(t, []string{"2"}, query(t, path, "PRAGMA user_version"), "reading migrates nothing")

	s := open(t, path)
	require.Equal(t, []string{"4"}, query(t, path, "PRAGMA user_version"))
	holdsVersion2(t, s.Reader, s)
	require.Equal(t, []string{"train-0-0-0", "train-0-0-1 engine infrastructure"}, query(t, path, "SELECT trim(id || ' ' || branch || origin || ' ' || failure) FROM trajectories ORDER BY id"))
	require.Equal(t, []string{"1", "1", "3", "3", "3"}, query(t, path, "SELECT turn FROM events ORDER BY n"))

	_, _, partial := version2(t)
	turn(t, partial, 3, 4)
	require.NoError(t, s.AddTurn(ctx, partial))
	partial.Fail(trajectory.OriginDeadline, "late")
	partial.StopReason = trajectory.StopError
	task := trajectory.Task{ID: "k1", Fields: map[string]any{"answer": "4"}}
	require.NoError(t, s.AddTrajectory(ctx, store.Train, task, partial))
	require.NoError(t, s.Close())
	s = open(t, path)
	got, err := s.Reader.Trajectory(ctx, partial.ID)
	require.NoError(t, err)
	require.Equal(t, partial, got)
	require.Equal(t, []string{"deadline infrastructure"}, query(t, path, "SELECT origin || ' ' || failure FROM trajectories WHERE id = 'train-0-1-0'"))
	require.Equal(t, []string{"01", "01", "01", "01", "02", "02"}, query(t, path, "SELECT hex(substr(body, 1, 1)) FROM turns ORDER BY n"))
}

// What a branch samples is stored beside its trunk.
func TestBranchesAreStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	a := admission(0, 0, 1)
	require.NoError(t, s.Admit(ctx, a))
	trunk := begin(a, 0)
	leaf := begin(a, 0)
	leaf.Branch = "0.1"
	leaf.ID = trajectory.Place{Phase: store.Train, Branch: leaf.Branch}.ID()
	for _, tr := range []*trajectory.Trajectory{trunk, leaf} {
		turn(t, tr, 2, 0)
		require.NoError(t, s.AddTurn(ctx, tr))
		require.NoError(t, s.AddTrajectory(ctx, store.Train, a.Task, tr))
	}
	got, err := s.Reader.Trajectory(ctx, "train-0-0-0.0.1")
	require.NoError(t, err)
	require.Equal(t, leaf, got)
	require.Equal(t, []string{"train-0-0-0 ", "train-0-0-0.0.1 0.1"}, query(t, path, "SELECT id || ' ' || branch FROM trajectories ORDER BY id"))
}

// A damaged row does not keep the others from being migrated: reading it names it, as before.
func TestMigrationPassesDamagedRows(t *testing.T) {
	path := fromScript(t, "testdata/version2.sql")
	for _, harm := range []string{"UPDATE trajectories SET json = '{' WHERE id = 'train-0-0-1'", "UPDATE events SET json = '{' WHERE n = 2"} {
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		_, err = db.Exec(harm)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	s := open(t, path)
	_, err := s.Reader.Trajectory(ctx, "train-0-0-1")
	require.ErrorContains(t, err, "trajectory train-0-0-1 is damaged: its checksum is wrong")
	_, err = s.Recover(ctx, 0)
	require.ErrorContains(t, err, "event 2 is damaged: its checksum is wrong")
	_, err = s.Reader.Trajectory(ctx, "train-0-0-0")
	require.NoError(t, err)
}

// A migration that is killed, at any byte of what it writes, leaves a store of version 2, 3 or 4; all are read, and go on.
func TestAKilledMigrationLeavesAWholeStore(t *testing.T) {
	path := fromScript(t, "testdata/version2.sql")
	s := open(t, path) // its write-ahead log is the migration
	db, err := os.ReadFile(path)
	require.NoError(t, err)
	wal, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	versions := map[string]int{}
	frame := 4096 + 24
	cuts := []int{0, 1, len(wal) - 1, len(wal)}
	for at := 32; at < len(wal); at += frame {
		cuts = append(cuts, at, at+frame/2)
	}
	for i, at := range cuts {
		cut := filepath.Join(t.TempDir(), fmt.Sprint("cut", i, ".db"))
		require.NoError(t, os.WriteFile(cut, db, 0o600))
		require.NoError(t, os.WriteFile(cut+"-wal", wal[:at], 0o600))
		version := query(t, cut, "PRAGMA user_version")[0]
		versions[version]++
		reader, err := store.OpenReader(cut)
		require.NoError(t, err)
		holdsVersion2(t, reader, reader)
		require.NoError(t, reader.Close())
		again, err := store.Open(cut)
		require.NoError(t, err)
		holdsVersion2(t, again.Reader, again)
		require.NoError(t, again.Close())
		require.Equal(t, []string{"4"}, query(t, cut, "PRAGMA user_version"))
	}
	require.Equal(t, 1, versions["4"], "only the whole log is the new version")
	require.Positive(t, versions["2"])
	require.Equal(t, len(cuts)-1, versions["2"]+versions["3"])
}

// A store of version 3 has no entropies. It is read as it is, and a run that goes on in it adds those of its own steps.
func TestAStoreWithoutEntropiesGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	s := open(t, path)
	old := []float32{0, 0, -1, -2}
	for i := range 2 {
		in := &trajectory.Trajectory{ID: fmt.Sprint("train-", i, "-0-0"), TaskID: "k", Step: i, StopReason: trajectory.StopAnswer, Samples: []*trajectory.Sample{sampleOf(t)}}
		require.NoError(t, s.AddTrajectory(ctx, store.Train, trajectory.Task{ID: "k"}, in))
	}
	require.NoError(t, s.AddStep(ctx, 0, nil, []store.Update{{TrajectoryID: "train-0-0-0", OldLogprobs: old, Advantages: old}}))
	require.NoError(t, s.Close())
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("ALTER TABLE updates DROP COLUMN entropy; PRAGMA user_version = 3")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	updates := func(r *store.Reader, id string) []store.Update {
		record, err := r.Record(ctx, id)
		require.NoError(t, err)
		return record.Updates
	}
	want := []store.Update{{TrajectoryID: "train-0-0-0", OldLogprobs: old, Advantages: old}}

	reader, err := store.OpenReader(path)
	require.NoError(t, err)
	defer reader.Close()
	require.Equal(t, want, updates(reader, "train-0-0-0"))
	s = open(t, path)
	next := store.Update{TrajectoryID: "train-1-0-0", Step: 1, OldLogprobs: old, Advantages: old, Entropy: []float32{0, 0, 0.5, 1.25}}
	require.NoError(t, s.AddStep(ctx, 1, nil, []store.Update{next}))
	require.Equal(t, want, updates(s.Reader, "train-0-0-0"))
	require.Equal(t, []store.Update{next}, updates(s.Reader, "train-1-0-0"))
	require.Len(t, updates(reader, "train-1-0-0"), 1, "who opened the store before it was migrated reads on, without entropies")
}
