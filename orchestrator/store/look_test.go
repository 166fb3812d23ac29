package store

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// A trajectory that is damaged is told from one that cannot be read just now.
func TestDamaged(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), File))
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	tr := &trajectory.Trajectory{ID: "a", TaskID: "k", Turns: []trajectory.Turn{{Completion: "said a"}}}
	require.NoError(t, s.AddTurn(t.Context(), tr))
	require.NoError(t, s.AddTrajectory(t.Context(), Train, trajectory.Task{ID: "k"}, tr))
	for _, one := range []struct {
		do, want string
		damaged  bool
	}{
		{"ALTER TABLE updates RENAME TO away", "no such table: updates", false},
		{"ALTER TABLE away RENAME TO updates; ALTER TABLE turns RENAME TO away", "trajectory a: row 1 of turns: SQL logic error: no such table: turns", false},
		{"ALTER TABLE away RENAME TO turns; UPDATE tasks SET json = 'k'", "task k is damaged: invalid character", true},
		{"UPDATE trajectories SET json = replace(json, 'k', 'x')", "trajectory a is damaged: its checksum is wrong", true},
	} {
		_, err := s.Reader.file.db.ExecContext(t.Context(), one.do)
		require.NoError(t, err)
		_, err = s.Reader.Record(t.Context(), "a")
		require.ErrorContains(t, err, one.want)
		require.Equal(t, one.damaged, Damaged(err), "%v", err)
	}
}

// A whole store is read newest first; one that is damaged is told by its name, and those before it follow.
func TestEachNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	s, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	ctx := context.Background()
	for i, id := range []string{"a", "b", "c"} {
		sample := &trajectory.Sample{}
		sample.AppendObservation([]int32{1})
		require.NoError(t, sample.AppendResponse([]int32{2, 3}, []float32{-1, -0.5}, []int32{int32(i), int32(i)}))
		tr := &trajectory.Trajectory{
			ID: id, TaskID: "k", Step: i, Samples: []*trajectory.Sample{sample},
			Turns: []trajectory.Turn{{CompletionStart: 1, CompletionEnd: 3, ObservationEnd: 3, Completion: "said " + id}},
		}
		require.NoError(t, s.AddTurn(ctx, tr))
		require.NoError(t, s.AddTrajectory(ctx, Train, trajectory.Task{ID: "k"}, tr))
	}
	require.NoError(t, s.AddStep(ctx, 0, map[string]float64{"reward/mean": 0.5}, []Update{{TrajectoryID: "a", OldLogprobs: []float32{0, -1, -2}, Advantages: []float32{0, 1, 1}}}))
	end, err := s.Reader.End(ctx)
	require.NoError(t, err)
	require.Equal(t, Cursor{Turn: 6, Event: 1}, end)
	_, err = s.Reader.file.db.Exec("UPDATE trajectories SET json = replace(json, 'k', 'x') WHERE id = 'b'")
	require.NoError(t, err)
	r, err := OpenReader(path)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	var got []string
	require.NoError(t, r.EachNewest(ctx, func(phase string, tr *trajectory.Trajectory, damaged error) error {
		if damaged != nil {
			got = append(got, damaged.Error())
			return nil
		}
		got = append(got, phase+" "+tr.ID+" "+tr.Turns[0].Completion)
		require.Len(t, tr.Samples[0].TokenIDs, 3)
		return nil
	}))
	require.Equal(t, []string{"train c said c", "trajectory b is damaged: its checksum is wrong", "train a said a"}, got)
	one, err := r.Record(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, []float32{0, -1, -2}, one.Updates[0].OldLogprobs)
	none, err := r.Record(ctx, "z")
	require.NoError(t, err)
	require.Nil(t, none)
	steps, last, err := r.Progress(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, steps)
	require.Equal(t, 0.5, last["reward/mean"])
}
