package report

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/schedule"
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
	lengths := func(b *schedule.Batch) map[string]float64 {
		var r Rollouts
		r.addLengths(b)
		got := map[string]float64{"trajectories/cut": float64(r.Trajectories.Cut)}
		read(reflect.ValueOf(r.Lengths), "", got)
		return got
	}
	require.Equal(t, map[string]float64{
		"trajectories/cut": 3, "length/trained_mean": 5.5, "length/trained_p50": 5, "length/trained_p90": 9, "length/trained_max": 10,
		"length/cut_mean": 9, "length/cut_p50": 9, "length/cut_p90": 9, "length/cut_max": 10,
		"length/dropped_mean": 20, "length/dropped_p50": 20, "length/dropped_p90": 20, "length/dropped_max": 40,
	}, lengths(b))
	require.Equal(t, map[string]float64{"trajectories/cut": 0}, lengths(&schedule.Batch{}))

	b.All = b.Trained
	s := Describe(b, make([]float64, 10), trainer.Metrics{}, Facts{Whole: time.Second})
	require.Equal(t, 5.5, *s.Rollouts.Lengths.Response, "a failed trajectory does not count")
}

func TestCallsAreCounted(t *testing.T) {
	failed := func(cause trajectory.Cause) trajectory.ToolResult {
		return trajectory.ToolResult{Failed: true, Cause: cause, Broken: cause == trajectory.CauseBroken, Duration: time.Second}
	}
	var turns Turns
	metrics := func() map[string]float64 {
		m := map[string]float64{}
		read(reflect.ValueOf(turns.Calls), "", m)
		return m
	}
	turns.add(trajectory.Turn{})
	for _, name := range []string{"calls", "failed", "unknown", "bad_arguments", "parse_errors", "broken", "retries", "cached"} {
		v, ok := metrics()["tools/"+name]
		require.True(t, ok && v == 0, name)
	}
	turns.add(trajectory.Turn{ParseErrors: 1, Results: []trajectory.ToolResult{
		{Retries: 2, Duration: 2 * time.Second},
		{Cached: true},
		failed(trajectory.CauseUnknownTool), failed(trajectory.CauseBadArguments), failed(trajectory.CauseBadArguments), failed(trajectory.CauseRaised), failed(trajectory.CauseBroken),
		{Failed: true, Cause: trajectory.CauseParse},
	}})
	require.Equal(t, map[string]float64{
		"tools/calls": 7, "tools/failed": 6, "tools/unknown": 1, "tools/bad_arguments": 2, "tools/parse_errors": 1, "tools/broken": 1, "tools/retries": 2, "tools/cached": 1, "seconds/tools": 7,
	}, metrics())
}

func TestErrorsAreCountedByOrigin(t *testing.T) {
	broken := trajectory.Turn{Results: []trajectory.ToolResult{{Failed: true, Broken: true, Observation: "Error: slow took longer than 1s"}, {Failed: true}, {}, {}}}
	groups := []trajectory.Group{{Trajectories: []*trajectory.Trajectory{
		{ID: "a", Err: "x", ErrOrigin: "engine"},
		{ID: "b", Err: "x", ErrOrigin: "engine", Turns: []trajectory.Turn{broken}},
		{ID: "c", Err: "x", ErrOrigin: "render"},
		{ID: "d", Turns: []trajectory.Turn{broken, broken}},
		{ID: "e"},
		{ID: "f", Err: "stopped", ErrOrigin: "engine", StopReason: trajectory.StopCancelled},
	}}}
	errs := errorsOf(groups)
	require.Equal(t, map[string]int{"agent": 0, "deadline": 0, "engine": 2, "environment": 0, "render": 1, "reward": 0, "teacher": 0, "tool": 3}, errs)
	var sum Totals
	for range 2 {
		sum.Add(Step{Rollouts: &Rollouts{Trajectories: Trajectories{Errors: errs}}}, 0)
	}
	require.Equal(t, map[string]int{"engine": 4, "render": 2, "tool": 6}, sum.Errors)
}
