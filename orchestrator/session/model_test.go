package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// The job counts steps of the run, each of several updates; the rate falls over all of them and reaches 0 at the last.
func TestTheLearningRateFallsOverTheWholeRun(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nalgorithm: {epochs: 2, mini_batches: 3}\ntrainer: {steps: 10, learning_rate: 0.4, warmup_steps: 2, schedule: linear}\n"
	j, err := job.Parse("x.yaml", []byte(text), job.Options{})
	require.NoError(t, err)
	a, err := job.Algorithm(j, algorithms.NewRegistry())
	require.NoError(t, err)
	s := scheduleOf(j.Trainer, a) // 6 optimizer steps a step: 12 of warm-up, then 48 from the peak to 0
	for at, want := range map[int]float64{0: 0.4 / 12, 5: 0.2, 11: 0.4, 12: 0.4, 36: 0.2, 59: 0.4 / 48, 60: 0} {
		require.InDelta(t, want, s.At(at), 1e-12, "optimizer step %d", at)
	}
}
