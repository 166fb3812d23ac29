package objective

import (
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// A batch does not shuffle all conversations anew for each of its own.
func TestConversationsOfAnEpochAreShuffledOnce(t *testing.T) {
	const n, batch = 100_000, 8
	s := &trajectory.Sample{}
	require.NoError(t, s.AppendResponse([]int32{2}, []float32{-1}, []int32{0}))
	all := slices.Repeat([]*trajectory.Trajectory{{Samples: []*trajectory.Sample{s}}}, n)
	db, err := store.Open(filepath.Join(t.TempDir(), store.File))
	require.NoError(t, err)
	defer db.Close()
	o := NewSFT(&job.Job{SFT: &job.SFT{Batch: batch}}, all, nil, 0)
	o.Prepare(Found{DB: db})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = o.Batch(t.Context(), At{})
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*8*n), "bytes: a permutation has 8n")
}

// What was learned from a run with trees stands by itself: it forks off nothing, and all of its turns are its own.
func TestALearnedTrajectoryOfATreeStandsByItself(t *testing.T) {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1})
	require.NoError(t, s.AppendResponse([]int32{2, 3, 4}, []float32{-1, -1, -1}, []int32{0, 0, 0}))
	chosen := &trajectory.Trajectory{ID: "train-4-2-1.0", Index: 1, Branch: "0", Forked: 1, ForkedAt: 1, Samples: []*trajectory.Sample{s}}
	chosen.Turns = []trajectory.Turn{
		{CompletionStart: 1, CompletionEnd: 2, ObservationEnd: 2, Shared: trajectory.SharedName("train-4-2-1", 0)},
		{CompletionStart: 2, CompletionEnd: 4, ObservationEnd: 4, Shared: trajectory.SharedName("train-4-2-1.0", 1), Begun: []trajectory.Begun{{Shared: trajectory.SharedName("train-4-2-1", 1), End: 1}}},
	}
	path := filepath.Join(t.TempDir(), store.File)
	db, err := store.Open(path)
	require.NoError(t, err)
	defer db.Close()
	o := NewSFT(&job.Job{SFT: &job.SFT{Batch: 1}}, []*trajectory.Trajectory{chosen}, nil, 0)
	o.Prepare(Found{DB: db})
	b, err := o.Batch(t.Context(), At{})
	require.NoError(t, err)
	stored, err := db.Reader.Trajectory(t.Context(), "sft-0-0")
	require.NoError(t, err)
	for _, tr := range []*trajectory.Trajectory{stored, b.Groups[0].Trajectories[0]} {
		require.Equal(t, trajectory.Branch(""), tr.Branch)
		require.Zero(t, tr.Forked)
		require.Zero(t, tr.ForkedAt)
		require.Len(t, tr.Turns, 2)
		for k := range tr.Turns {
			require.True(t, tr.Owns(k), k)
			require.Empty(t, tr.Turns[k].Begun)
		}
	}
	require.Equal(t, trajectory.Branch("0"), chosen.Branch, "the run's own is as it was")
	require.False(t, chosen.Owns(0))
}
