package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

var ctx = context.Background()

func sampleOf(t *testing.T) *trajectory.Sample {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{5, 6})
	require.NoError(t, s.AppendResponse([]int32{7, 8}, []float32{-0.5, -1.25}, []int32{3, 3}))
	return s
}

func open(t *testing.T, path string) *store.Store {
	s, err := store.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestWhatIsStoredComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?#%.db")
	s := open(t, path)
	task := trajectory.Task{ID: "one", Prompt: []trajectory.Message{trajectory.Text("user", "2 < 3 & ü")}, Fields: map[string]any{"answer": "6"}}
	in := &trajectory.Trajectory{ID: "train-0-one-0", TaskID: "one", Reward: 0.2, StopReason: trajectory.StopAnswer, Samples: []*trajectory.Sample{sampleOf(t)}}
	require.NoError(t, s.AddTrajectory(ctx, "train", task, in))
	require.NoError(t, s.AddTrajectory(ctx, "train", task, in)) // again: replaced, not doubled
	require.NoError(t, s.AddStep(ctx, 0, map[string]float64{"reward/mean": 0.2}, []store.Update{{TrajectoryID: in.ID, OldLogprobs: []float32{0, 0, -1, -2}, Advantages: []float32{0, 0, 1, 1}}}))

	reader, err := store.OpenReader(path) // beside the writer
	require.NoError(t, err)
	defer reader.Close()
	var got []store.Record
	require.NoError(t, reader.Select(ctx, store.Selection{}, func(r store.Record) error { got = append(got, r); return nil }))
	require.Len(t, got, 1)
	require.Equal(t, in.Samples, got[0].Trajectory.Samples)
	require.Equal(t, 0.2, got[0].Trajectory.Reward)
	require.Equal(t, "6", got[0].Task.Fields["answer"])
	require.Equal(t, task.Prompt, got[0].Task.Prompt)
	require.Equal(t, []float32{0, 0, -1, -2}, got[0].Updates[0].OldLogprobs)
	steps, err := reader.Steps()
	require.NoError(t, err)
	require.Equal(t, []map[string]float64{{"reward/mean": 0.2}}, steps)
	nobody, err := reader.Record(ctx, "nobody")
	require.NoError(t, err)
	require.Nil(t, nobody)

	for step, name := range []string{"before", "after"} {
		require.NoError(t, s.AddEvaluation(ctx, name, step, name))
	}
	require.NoError(t, s.Truncate(ctx, 0))
	require.NoError(t, reader.Select(ctx, store.Selection{}, func(store.Record) error { return fmt.Errorf("a trajectory is left") }))
	evaluations, err := reader.Evaluations()
	require.NoError(t, err)
	require.Equal(t, []json.RawMessage{[]byte(`"before"`)}, evaluations)
}

func TestManyWritersAtOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	sample := sampleOf(t)
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			tr := &trajectory.Trajectory{ID: fmt.Sprint("t", i), TaskID: "k", Samples: []*trajectory.Sample{sample}}
			require.NoError(t, s.AddTrajectory(ctx, "train", trajectory.Task{ID: "k"}, tr))
		})
	}
	all.Wait()
	n := 0
	require.NoError(t, s.Reader.Select(ctx, store.Selection{}, func(store.Record) error { n++; return nil }))
	require.Equal(t, 300, n)
}

func TestWhatIsNotAStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte("this is not a database, it is a text that is long enough"), 0o600))
	_, err := store.Open(garbage)
	require.ErrorContains(t, err, "cannot be read as a store")
	_, err = store.OpenReader(filepath.Join(dir, "nothing.db"))
	require.ErrorContains(t, err, "name a run folder")

	newer := filepath.Join(dir, "newer.db")
	require.NoError(t, open(t, newer).Close())
	db, err := sql.Open("sqlite", newer)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA user_version = 99")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = store.Open(newer)
	require.ErrorContains(t, err, "written by a newer program (version 99")
}

func TestClosedStoreRefuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	require.NoError(t, s.Close())
	require.ErrorContains(t, s.AddStep(ctx, 0, nil, nil), "closed")
}

// What turns were paid and what was taken back at the end stays taken back, though the rows of the turns were written before.
func TestWhatWasTakenBackStaysSo(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	paid := 0.5
	tr := &trajectory.Trajectory{ID: "train-0-one-0", TaskID: "one", Samples: []*trajectory.Sample{sampleOf(t)}, Turns: []trajectory.Turn{{CompletionStart: 2, CompletionEnd: 4, ObservationEnd: 4, Reward: &paid}}}
	require.NoError(t, s.AddTurn(ctx, tr))
	tr.TakeBack()
	require.NoError(t, s.AddTrajectory(ctx, "train", trajectory.Task{ID: "one"}, tr))
	got, err := s.Reader.Trajectory(ctx, tr.ID)
	require.NoError(t, err)
	require.Len(t, got.Turns, 1)
	require.Zero(t, got.Return())
	require.Nil(t, got.Turns[0].Reward)
}

// When a run began, and its id, are what was stored first. Of a run that an older program began its first trajectory tells when, and it has no id.
func TestWhenARunBegan(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), store.File))
	defer db.Close()
	first, later := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC), time.Date(2026, time.March, 5, 0, 0, 0, 0, time.UTC)
	began := func() time.Time {
		at, err := db.Reader.Began(t.Context())
		require.NoError(t, err)
		return at
	}
	id := func() string {
		id, err := db.Reader.ID()
		require.NoError(t, err)
		return id
	}
	require.Zero(t, began())
	for i, at := range []time.Time{first, later} {
		require.NoError(t, db.AddTrajectory(t.Context(), store.Train, trajectory.Task{ID: "k"}, &trajectory.Trajectory{ID: store.ID(store.Train, 0, 0, i), TaskID: "k", Started: at}))
	}
	require.Equal(t, first, began())
	require.Empty(t, id())
	require.NoError(t, db.Begin(t.Context(), later, "one"))
	require.Equal(t, later, began())
	require.Equal(t, "one", id())
	require.NoError(t, db.Begin(t.Context(), first, "other"))
	require.Equal(t, later, began())
	require.Equal(t, "one", id())
}
