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
		r.addLengths(b, Facts{})
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

// What trajectories of a tree share is counted where it was sampled: a turn, and the beginning of one.
func TestWhatIsSharedCountsOnce(t *testing.T) {
	r := Rollouts{Reward: Reward{Parts: map[string]float64{}}, Trajectories: Trajectories{Stops: map[string]int{}}}
	r.add(&trajectory.Trajectory{ID: "a", Turns: []trajectory.Turn{{CompletionEnd: 10, Shared: "a:0"}, {CompletionStart: 20, CompletionEnd: 27, Shared: "a:1"}}})
	r.add(&trajectory.Trajectory{ID: "b", Turns: []trajectory.Turn{
		{CompletionEnd: 10, Shared: "a:0"}, {CompletionStart: 20, CompletionEnd: 29, Shared: "b:1", Begun: []trajectory.Begun{{Shared: "a:1", End: 4}}},
	}})
	require.Equal(t, 10+7+5, r.Turns.TokensSampled)
	require.Equal(t, 3, r.Turns.Turns)
}

// A call that trajectories of a tree share was made once, and so it failed once.
func TestCallsThatAreSharedFailOnce(t *testing.T) {
	broken := trajectory.ToolResult{Call: trajectory.ToolCall{Name: "search"}}
	broken.Fail(trajectory.CauseBroken, "Error: gone")
	group := trajectory.Group{}
	for _, id := range []string{"a", "a.0", "a.1"} {
		group.Trajectories = append(group.Trajectories, &trajectory.Trajectory{ID: id, Turns: []trajectory.Turn{{Shared: "a:0", Results: []trajectory.ToolResult{broken}}}})
	}
	groups := []trajectory.Group{group}
	require.Equal(t, []string{"tool errors 1/1  search: gone"}, FailureLines(groups))
	require.Equal(t, 1, errorsOf(groups)["tool"])
}

func TestCallsAreCounted(t *testing.T) {
	failed := func(cause trajectory.Cause) trajectory.ToolResult {
		return trajectory.ToolResult{Failed: true, Cause: cause, Duration: time.Second}
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
	broken := trajectory.Turn{Results: []trajectory.ToolResult{{Failed: true, Cause: trajectory.CauseBroken, Observation: "Error: slow took longer than 1s"}, {Failed: true}, {}, {}}}
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

// A step of two groups in numbers: a trajectory that answered after a call, one that a limit cut, one that failed, and a dropped group.
func TestAStepInNumbers(t *testing.T) {
	answered := sampledTokens(t, 0, 10)
	answered.StopReason, answered.RewardParts = trajectory.StopAnswer, map[string]float64{"right": 1}
	answered.Turns[0].CachedTokens, answered.Turns[0].Results = 2, []trajectory.ToolResult{{Duration: 500 * time.Millisecond}}
	cut := sampledTokens(t, 1, 20)
	cut.StopReason, cut.RewardParts = trajectory.StopMaxTokens, map[string]float64{"right": 0}
	cut.Turns[0].FinishReason = trajectory.FinishLength
	failed := &trajectory.Trajectory{Err: "gone", ErrOrigin: "engine", StopReason: trajectory.StopError}
	trained := trajectory.Group{Trajectories: []*trajectory.Trajectory{answered, cut}, Greedy: &trajectory.Trajectory{Reward: 0.5}}
	dropped := trajectory.Group{Trajectories: []*trajectory.Trajectory{failed}, Greedy: &trajectory.Trajectory{Err: "gone"}}
	b := &schedule.Batch{All: []trajectory.Group{trained, dropped}, Trained: []trajectory.Group{trained}, Running: 3, Dropped: 2, Refills: 1}
	m := trainer.Metrics{
		Loss: 1, GradNorm: 2, LearningRate: 3, Entropy: 4, ClipFraction: 5, Dropped: 6, KL: 7, ValueLoss: 8, Explained: 9, MismatchMean: 10, MismatchMax: 11,
		MismatchK3: 12, ESS: 13, StalenessMean: 14, StalenessMax: 15, Filtered: 16, FlatGroups: 17, PackedTokens: 18, UnpackedTokens: 60,
	}
	f := Facts{Version: 19, Waited: 2 * time.Second, Whole: 5 * time.Second, Elapsed: 20, Sync: 21}
	want := map[string]float64{
		"reward/mean": 0.25, "reward/right": 0.5, "greedy/reward": 0.5, "greedy/failed": 1,
		"trajectories/finished": 2, "trajectories/failed": 1, "trajectories/running": 3, "trajectories/cut": 0,
		"errors/agent": 0, "errors/deadline": 0, "errors/engine": 1, "errors/environment": 0, "errors/render": 0, "errors/reward": 0, "errors/teacher": 0, "errors/tool": 0,
		"stop/answer": 1, "stop/max_tokens": 1, "stop/error": 1,
		"groups/flat": 17, "groups/sampled": 2, "groups/dropped": 1, "groups/refills": 1, "groups/too_stale": 2,
		"turns": 2, "turns/cut": 1, "tools/calls": 1, "tools/failed": 0, "tools/parse_errors": 0, "tools/unknown": 0, "tools/bad_arguments": 0, "tools/broken": 0,
		"tools/retries": 0, "tools/cached": 0, "seconds/tools": 0.5, "tokens/sampled": 30, "tokens/cached": 2,
		"length/response_mean": 15, "length/trained_mean": 15, "length/trained_p50": 10, "length/trained_p90": 10, "length/trained_max": 20,
		"tokens/packed": 18, "tokens/unpacked": 60, "tokens/sample_per_second": 15, "tokens/train_per_second": 20,
		"update/loss": 1, "update/grad_norm": 2, "update/learning_rate": 3, "update/entropy": 4, "update/clip_fraction": 5, "update/dropped": 6, "update/kl": 7,
		"update/value_loss": 8, "update/explained": 9, "update/mismatch_mean": 10, "update/mismatch_max": 11, "update/mismatch_k3": 12, "update/ess": 13,
		"update/staleness_mean": 14, "update/staleness_max": 15, "update/policy_version": 19,
		"seconds/sample": 2, "seconds/wait": 2, "seconds/sync": 21, "seconds/train": 3, "seconds/step": 5, "seconds/elapsed": 20,
	}
	require.Equal(t, want, Describe(b, []float64{0.5, 0}, m, f).Map())
	f.Overlaps, f.FilterCut = true, true // sampling takes the whole step
	want["seconds/sample"], want["tokens/sample_per_second"], want["trajectories/filtered"] = 5, 6, 16
	want["length/trained_mean"], want["length/trained_max"] = 10, 10 // without the one that was cut
	require.Equal(t, want, Describe(b, []float64{0.5, 0}, m, f).Map())
	f.Earlier, want["tokens/sample_per_second"] = 20, 2 // it waited for the other tokens alone
	require.Equal(t, want, Describe(b, []float64{0.5, 0}, m, f).Map())
}

// Lengths and trajectories/cut are of what the update takes in: not of what failed, was filtered, has no token that is trained, or has no baseline.
func TestLengthsAreOfWhatIsTrained(t *testing.T) {
	group := func(trajectories ...*trajectory.Trajectory) trajectory.Group {
		return trajectory.Group{Trajectories: trajectories}
	}
	failed, cut, frozen := sampledTokens(t, 1, 20), sampledTokens(t, 2, 40), sampledTokens(t, 3, 80)
	failed.Fail(trajectory.OriginReward, "gone")
	cut.StopReason, cut.Turns[0].FinishReason = trajectory.StopMaxTokens, trajectory.FinishLength
	frozen.Turns[0].Role = "judge"
	alone := group(sampledTokens(t, 4, 160))
	alone.Greedy = failed
	all := []trajectory.Group{group(sampledTokens(t, 0, 10), failed, cut, frozen), alone}
	b := &schedule.Batch{All: all, Trained: all, Cut: [][]bool{{true, true, true, true}, {true}}}
	judge := func(r trajectory.Role) bool { return r == "judge" }
	m := Describe(b, nil, trainer.Metrics{Empty: 1}, Facts{FilterCut: true, Frozen: judge}).Map()
	require.Equal(t, []float64{10, 10, 10, 1, 1}, []float64{m["length/trained_mean"], m["length/trained_max"], m["length/cut_max"], m["trajectories/cut"], m["trajectories/empty"]})
	m = Describe(b, nil, trainer.Metrics{}, Facts{}).Map()
	require.Equal(t, []float64{80, 3}, []float64{m["length/trained_max"], m["trajectories/cut"]})
	require.NotContains(t, m, "trajectories/empty")
}

// A step of which nothing finished has no reward, which is not one of 0: not its own, and not that of its greedy baselines.
func TestAStepOfWhichNothingFinishedHasNoReward(t *testing.T) {
	failed := &trajectory.Trajectory{Err: "gone", ErrOrigin: "engine", StopReason: trajectory.StopError}
	groups := []trajectory.Group{{Trajectories: []*trajectory.Trajectory{failed, failed}, Greedy: failed}}
	s := Describe(&schedule.Batch{All: groups, Trained: groups}, nil, trainer.Metrics{}, Facts{Whole: time.Second})
	m := s.Map()
	require.NotContains(t, m, "reward/mean")
	require.NotContains(t, m, "greedy/reward")
	require.Equal(t, []float64{0, 2, 1}, []float64{m["trajectories/finished"], m["trajectories/failed"], m["greedy/failed"]})
	require.Contains(t, new(Progress).Line(s, 1, 2, false), "reward -  answered")
	var sum Totals
	sum.Add(s, 0)
	require.Empty(t, sum.Rewards)
	require.Empty(t, sum.Summary(1, false).Reward)
}

// A run's speed of sampling is that of its steps: tokens that an earlier process recorded are not counted, because the time that they took is not.
func TestTheSpeedOfARunThatWasResumed(t *testing.T) {
	g := trajectory.Group{Trajectories: []*trajectory.Trajectory{sampledTokens(t, 0, 1000)}}
	b := &schedule.Batch{All: []trajectory.Group{g}, Trained: []trajectory.Group{g}, Cut: [][]bool{{false}}}
	var sum Totals
	for _, f := range []Facts{
		{Waited: 10 * time.Second, Whole: 11 * time.Second},
		{Waited: 5 * time.Second, Whole: 6 * time.Second, Earlier: 500}, // half of it was recorded
		{Waited: 10 * time.Millisecond, Whole: time.Second, Earlier: 1000},
		{Earlier: 1000}, // no time at all
	} {
		sum.Add(Describe(b, []float64{1}, trainer.Metrics{}, f), 1)
	}
	require.Equal(t, 1500.0, sum.SampledTokens)
	require.InDelta(t, 100, sum.Summary(4, false).TokensPerSecond["sample"], 0.1)
}

// The loss of supervised fine-tuning is the mean over the learned tokens of all conversations.
func TestAStepOfSupervisedFineTuningInNumbers(t *testing.T) {
	m := trainer.Metrics{Loss: 1, GradNorm: 2, LearningRate: 3, Entropy: 4, PackedTokens: 5, UnpackedTokens: 60, Samples: []trainer.SampleUpdate{
		{OldLogprobs: []float32{9, -1, -2}, Advantages: []float32{0, 1, 1}},
		{OldLogprobs: []float32{-6}, Advantages: []float32{1}},
	}}
	require.Equal(t, map[string]float64{
		"sft/loss": 3, "sft/conversations": 2, "sft/epoch": 0.5, "tokens/learned": 3, "tokens/packed": 5, "tokens/unpacked": 60, "tokens/train_per_second": 20,
		"seconds/train": 3, "seconds/step": 3, "seconds/elapsed": 7, "update/loss": 1, "update/grad_norm": 2, "update/learning_rate": 3, "update/entropy": 4, "update/policy_version": 8,
	}, DescribeSFT(2, 0.5, m, Facts{Version: 8, Whole: 3 * time.Second, Elapsed: 7}).Map())
	require.Zero(t, DescribeSFT(2, 0.5, trainer.Metrics{}, Facts{Whole: time.Second}).SFT.Loss, "a step that was skipped")
}
