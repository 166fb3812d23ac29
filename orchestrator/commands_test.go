package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

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
		err = Sample(t.Context(), j, "", 1, prebuilt(t), func(*trajectory.Trajectory) error { return nil })
		require.ErrorContains(t, err, want.rollout)
	}
}
