package orchestrator

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// While a batch is trained further tasks are dealt, also the first ones of an epoch. What they are follows from the log
// alone, so that a recovery deals the rest of that epoch, without a task of it twice.
func TestTheDealOfAnAsyncCurriculumFollowsFromTheLog(t *testing.T) {
	for _, by := range []string{"success_rate", "mask_count"} {
		synctest.Test(t, func(t *testing.T) {
			settings, order := job.Rollout{Mode: "async", MaxStaleness: 2}, job.Data{Curriculum: &job.Curriculum{By: by}}
			const steps = 16
			r, _ := nappingOn(t, order, 3, settings, corrected, steps)
			r.state.Curriculum = r.dealer.Resume(r.state.Curriculum, r.state.Step, r.state.Dealt)
			saved := [][]byte{} // the state after each step
			for resumed := 0; ; resumed++ {
				ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second)
				var err error
				for err == nil && r.state.Step < steps {
					if r.state.Step == len(saved) {
						text, err := json.Marshal(r.state)
						require.NoError(t, err)
						saved = append(saved, text)
					}
					err = r.training().step(ctx)
				}
				cancel()
				r.objective.Stop()
				if err == nil {
					require.Positive(t, resumed)
					break
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var at checkpoint.State
				require.NoError(t, json.Unmarshal(saved[max(0, r.state.Step-resumed%3)], &at))
				require.NoError(t, r.folder.DB.Close())
				require.NoError(t, r.folder.Metrics.Close())
				old := r
				r, _ = nappingOn(t, order, 3, settings, corrected, steps)
				continueAs(t, old, r, at)
			}
			admitted := admittedTasks(t, r)

			log, err := r.folder.DB.Recover(t.Context(), 0)
			require.NoError(t, err)
			twin, err := data.NewDealer(questions(20), order, 3, 1)
			require.NoError(t, err)
			from := twin.Resume(nil, 0, nil)
			at := 0
			for _, b := range log.Batches {
				for ; at < b.Dealt[0]; at++ {
					require.Equal(t, twin.Task(0, at).ID, admitted[at], "position %d, %s", at, by)
				}
				groups, err := r.folder.DB.Reader.Groups(t.Context(), b.Groups, "")
				require.NoError(t, err)
				twin.Observe(groups, b.Dealt)
			}
			require.Equal(t, 3*steps, at)
			require.Greater(t, from.Pools[0].Begun, 1)
		})
	}
}

// A run that goes on with other weights of its sources deals each of them on where it was, also where it ended before a checkpoint knew of the weights:
// no task comes twice in an epoch of its source.
func TestOtherWeightsGoOnWhereTheLogEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const steps, each = 15, 10
		begin := func(ones, twos int) *run {
			order := job.Data{Train: job.Sources{{Name: "ones", Weight: ones}, {Name: "twos", Weight: twos}}}
			all := questions(2 * each)
			all.Sources = []data.Tasks{{Name: "ones", Tasks: all.Tasks[:each]}, {Name: "twos", Tasks: all.Tasks[each:]}}
			r, _ := nappingOn(t, job.Data{}, 3, job.Rollout{Mode: "async", MaxStaleness: 2}, corrected, steps)
			dealer, err := data.NewDealer(all, order, 3, 1)
			require.NoError(t, err)
			r.dealer = dealer
			evaluates(r, nil)
			return r
		}
		train := func(r *run, until int) {
			for r.state.Step < until {
				require.NoError(t, r.training().step(t.Context()))
			}
			r.objective.Stop()
			require.NoError(t, r.folder.DB.Close())
		}
		r := begin(3, 1)
		require.NoError(t, r.deal(t.Context(), &store.Recovery{}))
		train(r, 3)
		saved := r.state // the only checkpoint
		for k, weights := range [][2]int{{1, 1}, {1, 1}, {1, 4}, {3, 1}} {
			old := r
			r = begin(weights[0], weights[1])
			continueAs(t, old, r, saved)
			train(r, 6+3*k)
		}
		db, err := store.OpenReader(storePath(t, r))
		require.NoError(t, err)
		defer db.Close()
		fact, err := db.Fact(weightsFact)
		require.NoError(t, err)
		require.Regexp(t, `^\[\{"from":0,"weights":\[3,1\]\},\{"from":\d+,"weights":\[1,1\]\},\{"from":\d+,"weights":\[1,4\]\},\{"from":\d+,"weights":\[3,1\]\}\]$`, fact)
		bySource := map[bool][]string{}
		positions := admittedTasks(t, r)
		for at := range len(positions) {
			require.Contains(t, positions, at)
			n, err := strconv.Atoi(positions[at][1:])
			require.NoError(t, err)
			bySource[n < each] = append(bySource[n < each], positions[at])
		}
		for _, dealt := range bySource {
			require.Greater(t, len(dealt), each)
			for len(dealt) > 0 {
				n := min(each, len(dealt))
				require.Len(t, slices.Compact(slices.Sorted(slices.Values(dealt[:n]))), n, "%v", dealt)
				dealt = dealt[n:]
			}
		}
		again := begin(3, 1) // a replay, which has the newest job
		again.recorded = db
		require.NoError(t, again.deal(t.Context(), &store.Recovery{}))
		for at, id := range positions {
			require.Equal(t, id, again.dealer.Task(0, at).ID, at)
		}
	})
}

// admittedTasks are the ids of the tasks that a run with one stratum dealt, by position.
func admittedTasks(t *testing.T, r *run) map[int]string {
	db, err := sql.Open("sqlite", storePath(t, r))
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query("SELECT json FROM events WHERE kind = 'admit' ORDER BY n")
	require.NoError(t, err)
	defer rows.Close()
	admitted := map[int]string{}
	for rows.Next() {
		var body []byte
		var a struct {
			Task     string
			Position int
		}
		require.NoError(t, rows.Scan(&body))
		require.NoError(t, json.Unmarshal(body, &a))
		admitted[a.Position] = a.Task
	}
	require.NoError(t, rows.Err())
	return admitted
}
