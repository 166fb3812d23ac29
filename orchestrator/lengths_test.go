package orchestrator

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// What a step says of rollouts beside it is in the log with its batch: a process that ends during the update does not lose it.
func TestABatchRemembersWhatWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := job.Rollout{Mode: "async", MaxStaleness: 2}
		r, _ := napping(t, settings, corrected, 20)
		var b *schedule.Batch
		cut := 0
		for cut == 0 { // a batch that has some
			whole, err := r.objective.Batch(t.Context(), objective.At{Step: r.state.Step, Version: r.state.Version, Dealt: r.state.Dealt})
			require.NoError(t, err)
			b = whole.Rollouts
			for _, c := range slices.Concat(b.Cut...) {
				if c {
					cut++
				}
			}
			if cut == 0 {
				require.NoError(t, r.training().update(t.Context(), whole, time.Now()))
			}
		}
		require.Positive(t, b.Running)
		r.objective.Stop()
		at := r.state
		require.NoError(t, r.folder.DB.Close())
		require.NoError(t, r.folder.Metrics.Close())

		r, _ = goOn(t, r, at, settings, corrected, 20)
		got, err := stepOf(t, r, at.Step)
		require.NoError(t, err)
		require.Equal(t, b.Cut, got.Cut)
		require.Equal(t, b.Running, got.Running)
		require.NoError(t, r.training().step(t.Context()))
		steps, err := r.folder.DB.Reader.Steps()
		require.NoError(t, err)
		require.Equal(t, []float64{float64(cut), float64(b.Running)}, []float64{steps[at.Step]["trajectories/cut"], steps[at.Step]["trajectories/running"]})
	})
}

func TestABatchIsWhatItsRecordSays(t *testing.T) {
	group := func(g int) trajectory.Group {
		return trajectory.Group{Trajectories: []*trajectory.Trajectory{{Step: 4, Group: g}, {Step: 4, Group: g, Index: 1}}}
	}
	b := &schedule.Batch{
		Step: 5, Version: 9, All: []trajectory.Group{group(0), group(1), group(2)}, Trained: []trajectory.Group{group(0), group(2)},
		Cut: [][]bool{{false, true}, {true, false}}, Running: 7, Dropped: 2, Lost: []int{3, 0}, Refills: 1, Dealt: []int{11},
	}
	rec := b.Record()
	require.Equal(t, store.Batch{
		Step: 5, Version: 9, Groups: []store.GroupRef{{Step: 4, Group: 0}, {Step: 4, Group: 2}}, Others: []store.GroupRef{{Step: 4, Group: 1}},
		Cut: []int{1, 2}, Running: 7, Stale: 2, Lost: []int{3, 0}, Refills: 1, Dealt: []int{11},
	}, rec)
	got := schedule.Recorded(rec, b.Trained)
	got.All = b.All
	require.Equal(t, b, got)
}
