package orchestrator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
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
			r.session.Job.Rollout.MaxFailed = 1
			r.session.Sampler.Engine = takenOver{r.session.Sampler.Engine}
			require.ErrorContains(t, r.training().steps(t.Context()), "engines: the weights are another run's", mode)
			require.Empty(t, trainer.batches)
			stored := 0
			require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, func(store.Record) error { stored++; return nil }))
			require.Zero(t, stored, "when the run goes on these trajectories begin anew")
		})
	}
	r := rollouttest.New(t, nil)
	r.Engine = takenOver{r.Engine}
	j := &job.Job{Rollout: job.Rollout{MaxFailed: 1}}
	_, err := objective.Evaluate(t.Context(), *r, nil, "before", 0, []trajectory.Task{rollouttest.Task("a", "a?", "5")}, j)
	require.ErrorContains(t, err, "orchestrator: eval-before-0-0-0 turn 0: vllm: request r: http://h: engines: the weights are another run's")
}
