package store_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// A selection reads what it names and nothing else, and the scores of evaluations need no turns.
func TestSelect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	add := func(phase string, step int, task string, reward float64, stop trajectory.StopReason, failed string) {
		tr := &trajectory.Trajectory{ID: store.ID(phase, step, 0, len(task)), TaskID: task, Step: step, Reward: reward, StopReason: stop, Err: failed, Samples: []*trajectory.Sample{sampleOf(t)}}
		require.NoError(t, s.AddTrajectory(ctx, phase, trajectory.Task{ID: task, Fields: map[string]any{"answer": task}}, tr))
	}
	add("train", 0, "a", 0.5, trajectory.StopAnswer, "")
	add("train", 1, "a", 1, trajectory.StopMaxTurns, "")
	add("train", 1, "bb", 0, trajectory.StopError, "broken")
	add("eval-before", 0, "a", 0.25, trajectory.StopAnswer, "")
	add("eval-after", 2, "a", 0.75, trajectory.StopAnswer, "")
	add("eval-after", 2, "bb", 0, trajectory.StopError, "broken")
	add("evaluated", 5, "a", 9, trajectory.StopAnswer, "") // no evaluation's
	add("eval'); DROP TABLE trajectories; --", 7, "a", 0, "?'\"", "")
	reader, err := store.OpenReader(path)
	require.NoError(t, err)
	defer reader.Close()
	phases, err := reader.Phases(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"eval'); DROP TABLE trajectories; --", "eval-after", "eval-before", "evaluated", "train"}, phases)
	step := func(n int) *int { return &n }
	told := 0
	require.NoError(t, reader.Select(ctx, store.Selection{Told: step(2)}, func(r store.Record) error {
		require.Contains(t, []string{"train-1-0-1", "train-1-0-2", "eval-after-2-0-1", "eval-after-2-0-2"}, r.Trajectory.ID)
		told++
		return nil
	}))
	require.Equal(t, 4, told)
	for want, q := range map[string]store.Selection{
		"train-0-0-1 train-1-0-1 train-1-0-2":                 {Phase: "train"},
		"train-1-0-1":                                         {Phase: "train", Step: step(1), Task: "a"},
		"eval-after-2-0-1 eval-after-2-0-2 eval-before-0-0-1": {Phase: "eval-*"},
		"eval-after-2-0-2 train-1-0-2":                        {Stop: "error"},
		"eval-before-0-0-1":                                   {ID: "eval-before-0-0-1"},
		"eval'); DROP TABLE trajectories; ---7-0-1":           {Stop: "?'\""},
		"": {Task: "a' OR '1'='1"},
	} {
		var got string
		require.NoError(t, reader.Select(ctx, q, func(r store.Record) error {
			if got != "" {
				got += " "
			}
			require.Len(t, r.Trajectory.Samples, 1)
			require.Equal(t, r.Trajectory.TaskID, r.Task.ID)
			got += r.Trajectory.ID
			return nil
		}))
		require.Equal(t, want, got, "%+v", q)
	}
	var scores []string
	require.NoError(t, reader.Scores(ctx, func(one store.Score) error {
		scores = append(scores, fmt.Sprintf("%s %d %s %g %s %v %s", one.Phase, one.Step, one.Task, one.Reward, one.StopReason, one.Failed, one.TaskJSON))
		return nil
	}))
	require.Equal(t, []string{
		`eval-after 2 a 0.75 answer false {"id":"a","prompt":null,"fields":{"answer":"a"}}`,
		`eval-after 2 bb 0 error true {"id":"bb","prompt":null,"fields":{"answer":"bb"}}`,
		`eval-before 0 a 0.25 answer false {"id":"a","prompt":null,"fields":{"answer":"a"}}`,
	}, scores)
	stop := fmt.Errorf("enough")
	require.ErrorIs(t, reader.Select(ctx, store.Selection{}, func(store.Record) error { return stop }), stop)
}
