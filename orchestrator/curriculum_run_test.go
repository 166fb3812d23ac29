package orchestrator

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
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
			admitted := map[int]string{} // by position
			db, err := sql.Open("sqlite", storePath(t, r))
			require.NoError(t, err)
			defer db.Close()
			rows, err := db.Query("SELECT json FROM events WHERE kind = 'admit' ORDER BY n")
			require.NoError(t, err)
			defer rows.Close()
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
