package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// takenOver is an engine whose servers another run has.
type takenOver struct{ engines.Engine }

func (takenOver) Generate(context.Context, engines.Request) (engines.Completion, error) {
	return engines.Completion{}, fmt.Errorf("vllm: request r: http://h: %w", engines.ErrForeign)
}

// What another run's weights would sample is no failure of a trajectory, of which a job may allow any number: the run ends,
// and so do an evaluation and a rollout.
func TestAnotherRunsWeightsEndTheRun(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		synctest.Test(t, func(t *testing.T) {
			settings := job.Rollout{Mode: mode}
			a := corrected
			if mode == "async" {
				settings.MaxStaleness = 2
			}
			r, trainer := napping(t, settings, a, 1000)
			r.job.Rollout.MaxFailed = 1
			r.rollout.Engine = takenOver{r.rollout.Engine}
			require.ErrorContains(t, r.steps(t.Context()), "engines: the weights are another run's", mode)
			require.Empty(t, trainer.batches)
			stored := 0
			require.NoError(t, r.db.Each("", func(store.Record) error { stored++; return nil }))
			require.Zero(t, stored, "when the run goes on these trajectories begin anew")
		})
	}
	r := newRollout(t, nil)
	r.Engine = takenOver{r.Engine}
	j := &job.Job{Rollout: job.Rollout{MaxFailed: 1}}
	_, err := evaluate(t.Context(), *r, nil, "before", 0, []trajectory.Task{task("a", "a?", "5")}, j)
	require.ErrorContains(t, err, "orchestrator: eval-before-0-0-0 turn 0: vllm: request r: http://h: engines: the weights are another run's")
}

// The name of a run's weights stays when it is resumed, and changes when its folder was copied: two of the same name could
// share a server and not notice.
func TestTheNameOfARunStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	begin := func(dir string, resume bool) string {
		r := &run{session: newSession(&job.Job{Name: "calculator"}), dir: dir, options: Options{Resume: resume}}
		require.NoError(t, r.identify())
		require.NoError(t, r.makeFolder(r.job))
		require.NoError(t, r.db.Close())
		require.NoError(t, r.metrics.Close())
		if r.unlock != nil {
			r.unlock()
		}
		return r.weights.Run
	}
	name := begin(dir, false)
	require.Regexp(t, `^calculator-[0-9a-f]{12}$`, name)
	require.Equal(t, name, begin(dir, true))
	require.NotEqual(t, name, begin(dir+"2", false), "another run of the job")

	moved := dir + "-copy"
	require.NoError(t, os.Rename(dir, moved))
	other := begin(moved, true)
	require.Regexp(t, `^calculator-[0-9a-f]{12}$`, other)
	require.NotEqual(t, name, other)
	require.Equal(t, other, begin(moved, true))

	require.NoError(t, os.Rename(moved, dir)) // a copy that lies where the run lay, as in another container
	was := begin(dir, true)
	require.Equal(t, was, begin(dir, true))
	require.NoError(t, os.Rename(dir, moved))
	require.NoError(t, os.CopyFS(dir, os.DirFS(moved)))
	copied := begin(dir, true)
	require.NotEqual(t, was, copied, "store.db is another file")
	require.Equal(t, copied, begin(dir, true))
	fact := func(name, value string) {
		db, err := store.Open(filepath.Join(dir, store.File))
		require.NoError(t, err)
		require.NoError(t, db.SetFact(t.Context(), name, value))
		require.NoError(t, db.Close())
	}
	fact(placeFact, "")
	require.Equal(t, copied, begin(dir, true), "a run of before places")
	fact(placeFact, "elsewhere")
	require.NotEqual(t, copied, begin(dir, true), "another host")

	old := filepath.Join(t.TempDir(), "old") // a run of before names
	require.NoError(t, os.MkdirAll(old, 0o755))
	db, err := store.Open(filepath.Join(old, store.File))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Equal(t, begin(old, true), begin(old, true))
}
