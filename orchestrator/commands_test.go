package orchestrator

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// unheard is for what nobody in a test reads.
func unheard(string) {}

// A command refuses a job that it has nothing to do with before it opens a model.
func TestCommandsRefuseAJobWithoutTasks(t *testing.T) {
	const head = "version: 1\nname: x\nmodel: {path: /no/such/model}\n"
	for text, want := range map[string]struct{ eval, rollout string }{
		"sft: {}\ndata: {train: a}\n": {
			"sft: supervised fine-tuning has conversations and no tasks to sample", "sft: supervised fine-tuning has conversations and no tasks to sample",
		},
		"rewards: [final_answer]\n": {"data.eval is missing", "data.train is missing"},
	} {
		j, err := job.Parse("x.yaml", []byte(head+text), job.Options{})
		require.NoError(t, err)
		_, err = Evaluate(t.Context(), j, "", false, prebuilt(t), nil)
		require.ErrorContains(t, err, want.eval)
		err = Sample(t.Context(), j, "", 1, prebuilt(t), unheard, func(*trajectory.Trajectory) error { return nil })
		require.ErrorContains(t, err, want.rollout)
	}
}

// Trajectories that failed are handed over, and more of them than rollout.max_failed end the sampling with their cause.
func TestSamplingOfWhichTooMuchFailsIsAnError(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if rollouttest.Index(q) > 0 {
			return engines.Completion{}, errors.New("gone")
		}
		return rollouttest.Say("<answer>1</answer>")
	})
	deal, err := data.NewDealer(&data.Tasks{Tasks: []trajectory.Task{rollouttest.Task("a", "a?", "1")}}, job.Data{}, 1, 1)
	require.NoError(t, err)
	limits, ended := job.Rollout{Groups: 1, GroupSize: 3, MaxFailed: 0.6, MaxFailedTool: 1}, 0
	count := func(*trajectory.Trajectory) error { ended++; return nil }
	require.EqualError(t, sample(t.Context(), r, deal, limits, 2, count), "orchestrator: step 1: 2 of 3 trajectories failed, more than rollout.max_failed (0.6); the first: engine: orchestrator: rollout-0-0-1 turn 0: scripted: request rollout-0-0-1-0: gone")
	require.Equal(t, 3, ended)
	limits.MaxFailed = 0.7
	require.NoError(t, sample(t.Context(), r, deal, limits, 2, count))
	require.Equal(t, 9, ended)
}
