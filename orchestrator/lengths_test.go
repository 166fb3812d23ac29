package orchestrator

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// sampledTokens is a trajectory of a turn of n sampled tokens.
func sampledTokens(t *testing.T, index, n int) *trajectory.Trajectory {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1, 2, 3})
	require.NoError(t, s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n)))
	return &trajectory.Trajectory{Index: index, Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{{CompletionStart: 3, CompletionEnd: 3 + n, ObservationEnd: 3 + n}}}
}

// Of ten trained trajectories of 1 to 10 tokens and a failed one, the three longest and the failed one had been cut before.
func TestLengthsOfWhatIsTrainedAndWhatWasCut(t *testing.T) {
	b := &schedule.Batch{Cut: [][]bool{make([]bool, 6), make([]bool, 5)}, Lost: []int{40, 0, 20}}
	for g, lengths := range [][]int{{10, 1, 2, 3, 4, 50}, {9, 5, 6, 8, 7}} {
		group := trajectory.Group{}
		for i, n := range lengths {
			tr := sampledTokens(t, i, n)
			if n == 50 {
				tr.Err = "late"
			}
			b.Cut[g][i] = n >= 8
			group.Trajectories = append(group.Trajectories, tr)
		}
		b.Trained = append(b.Trained, group)
	}
	got := map[string]float64{}
	addLengths(got, b)
	require.Equal(t, map[string]float64{
		"trajectories/cut": 3, "length/trained_mean": 5.5, "length/trained_p50": 5, "length/trained_p90": 9, "length/trained_max": 10,
		"length/cut_mean": 9, "length/cut_p50": 9, "length/cut_p90": 9, "length/cut_max": 10,
		"length/dropped_mean": 20, "length/dropped_p50": 20, "length/dropped_p90": 20, "length/dropped_max": 40,
	}, got)
	got = map[string]float64{}
	addLengths(got, &schedule.Batch{})
	require.Equal(t, map[string]float64{"trajectories/cut": 0}, got)

	b.All = b.Trained
	r := &run{session: &session{job: &job.Job{}}, started: time.Now()}
	require.Equal(t, 5.5, r.describe(b, make([]float64, 10), trainer.Metrics{}, 0, time.Second)["length/response_mean"], "a failed trajectory does not count")
}

// What a step says of rollouts beside it is in the log with its batch: a process that ends during the update does not lose it.
func TestABatchRemembersWhatWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := job.Rollout{Mode: "async", MaxStaleness: 2}
		r, _ := napping(t, settings, corrected, 20)
		var b *schedule.Batch
		cut := 0
		for cut == 0 { // a batch that has some
			whole, err := r.objective.Batch(t.Context(), At{Step: r.state.Step, Version: r.state.Version, Dealt: r.state.Dealt})
			require.NoError(t, err)
			b = whole.Rollouts
			for _, c := range slices.Concat(b.Cut...) {
				if c {
					cut++
				}
			}
			if cut == 0 {
				require.NoError(t, r.update(t.Context(), whole, time.Now()))
			}
		}
		require.Positive(t, b.Running)
		rlOf(r).feed.Close()
		at := r.state
		require.NoError(t, r.folder.DB.Close())
		require.NoError(t, r.folder.Metrics.Close())

		r, _ = goOn(t, r, at, settings, corrected, 20)
		got, err := rlOf(r).recorded(t.Context(), At{Step: at.Step, Version: r.state.Version})
		require.NoError(t, err)
		require.Equal(t, b.Cut, got.Cut)
		require.Equal(t, b.Running, got.Running)
		require.NoError(t, r.step(t.Context()))
		steps, err := r.folder.DB.Steps()
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
