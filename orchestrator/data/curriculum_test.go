package data

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// epochOf deals the next n tasks of a sampler with one pool.
func epochOf(s *Dealer, at *int, n int) (out []string) {
	for range n {
		out = append(out, s.Task(0, *at).ID)
		*at++
	}
	return out
}

// ended is a group whose trajectories had so many response tokens, those of right answered right.
func ended(task trajectory.Task, tokens int, right ...bool) trajectory.Group {
	g := trajectory.Group{Task: task}
	for _, ok := range right {
		s := &trajectory.Sample{TokenIDs: make([]int32, tokens), ResponseMask: slices.Repeat([]bool{true}, tokens)}
		g.Trajectories = append(g.Trajectories, &trajectory.Trajectory{
			Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{{FinalAnswer: map[bool]string{true: "1", false: "2"}[ok], AnsweredThisTurn: true}},
		})
	}
	return g
}

func TestDifficultyOrdersTheFirstEpochs(t *testing.T) {
	data := &Tasks{Tasks: numberedFrom("t", 6)}
	for i, level := range []string{"3", "1", "2.5", "-1", "10", "2"} {
		data.Tasks[i].Fields["level"] = json.Number(level)
	}
	s, err := NewDealer(data, job.Data{Curriculum: &job.Curriculum{By: "difficulty", Field: "level", Epochs: 2}}, 2, 1)
	require.NoError(t, err)
	at := 0
	easyFirst := []string{"t3", "t1", "t5", "t2", "t0", "t4"}
	require.Equal(t, easyFirst, epochOf(s, &at, 6))
	require.Equal(t, easyFirst, epochOf(s, &at, 6))
	third := epochOf(s, &at, 6)
	require.NotEqual(t, easyFirst, third)
	require.ElementsMatch(t, easyFirst, third)
	plain, err := NewDealer(data, job.Data{}, 2, 1)
	require.NoError(t, err)
	at = 12
	require.Equal(t, epochOf(plain, &at, 6), third, "later epochs are those of a run without a curriculum")

	for i, level := range []any{3, int64(1), 2.5, -1, int64(10), 2} { // as environments make them
		data.Tasks[i].Fields["level"] = level
	}
	s, err = NewDealer(data, job.Data{Curriculum: &job.Curriculum{By: "difficulty", Field: "level", Epochs: 2}}, 2, 1)
	require.NoError(t, err)
	at = 0
	require.Equal(t, easyFirst, epochOf(s, &at, 6))
	for _, none := range []any{"hard", nil, true, math.NaN(), json.Number("1e999")} {
		data.Tasks[4].Fields["level"] = none
		_, err = NewDealer(data, job.Data{Curriculum: &job.Curriculum{By: "difficulty", Field: "level", Epochs: 1}}, 2, 1)
		require.ErrorContains(t, err, `task "t4" has no number in the field "level" that data.curriculum names`)
	}
}

func TestMaskCountGoesFromShortToLong(t *testing.T) {
	data := &Tasks{Tasks: numberedFrom("t", 4)}
	s, err := NewDealer(data, job.Data{Curriculum: &job.Curriculum{By: "mask_count"}}, 2, 1)
	require.NoError(t, err)
	at := 0
	first := epochOf(s, &at, 4)
	require.ElementsMatch(t, []string{"t0", "t1", "t2", "t3"}, first)
	failed := ended(data.Tasks[2], 1, true)
	failed.Trajectories[0].Err = "gone"
	s.Observe([]trajectory.Group{ended(data.Tasks[0], 30, true, false), ended(data.Tasks[1], 5, true), failed, ended(data.Tasks[3], 12, false)}, []int{at})
	require.Equal(t, []string{"t1", "t3", "t0", "t2"}, epochOf(s, &at, 4), "5, 12, 30 tokens, and one that nobody knows")
}

func TestSuccessRateDealsWhatCanTeach(t *testing.T) {
	require.Equal(t, 1.0, chance(0.5))
	require.InDelta(t, 0.75, chance(0.25), 1e-12)
	require.InDelta(t, 0.36, chance(0.9), 1e-12)
	require.Equal(t, 0.1, chance(0))
	require.Equal(t, 0.1, chance(1))
	data := &Tasks{Tasks: numberedFrom("t", 3)}
	s, err := NewDealer(data, job.Data{Curriculum: &job.Curriculum{By: "success_rate"}}, 3, 1)
	require.NoError(t, err)
	dealt := map[string]int{}
	at, epochs := 0, 0
	for epochs = 0; epochs < 4000; epochs++ {
		begin := s.curriculum.state.Pools[0].Begun
		seen := map[string]bool{}
		for { // to the end of the epoch
			id := s.Task(0, at).ID
			require.False(t, seen[id], "no task comes twice in an epoch")
			seen[id] = true
			dealt[id]++
			at++
			if at == s.curriculum.state.Pools[0].end() {
				break
			}
		}
		require.Equal(t, begin+1, s.curriculum.state.Pools[0].Begun)
		// t0 is always solved, t1 half of the time, t2 once in four
		s.Observe([]trajectory.Group{
			ended(data.Tasks[0], 1, true, true, true, true), ended(data.Tasks[1], 1, true, true, false, false), ended(data.Tasks[2], 1, true, false, false, false),
		}, []int{at})
	}
	require.Equal(t, epochs, dealt["t1"])
	require.InDelta(t, 0.10, float64(dealt["t0"])/float64(epochs), 0.015) // 3 standard deviations
	require.InDelta(t, 0.75, float64(dealt["t2"])/float64(epochs), 0.021)
}

// An epoch is ordered by what was known when its first task was dealt. A recovery, which trains the batches again without
// dealing, comes to the same state.
func TestARecoveryComesToTheSameStanding(t *testing.T) {
	for _, by := range []string{"success_rate", "mask_count"} {
		data := &Tasks{Tasks: numberedFrom("t", 7)}
		d := job.Data{Curriculum: &job.Curriculum{By: by}}
		live, err := NewDealer(data, d, 4, 3)
		require.NoError(t, err)
		recovered, err := NewDealer(data, d, 4, 3)
		require.NoError(t, err)
		at := 0
		for step := range 20 {
			var batch []trajectory.Group
			for range 4 {
				batch = append(batch, outcomeOf(live.Task(0, at), step))
				at++
			}
			live.Observe(batch, []int{at})
			recovered.Observe(batch, []int{at})
			require.Equal(t, fmt.Sprintf("%+v", live.curriculum.state.Pools), fmt.Sprintf("%+v", recovered.curriculum.state.Pools))
		}
	}
}

func TestAStandingOfAnotherCurriculumIsNotTaken(t *testing.T) {
	data := &Tasks{Tasks: numberedFrom("t", 7)}
	s, err := NewDealer(data, job.Data{Curriculum: &job.Curriculum{By: "mask_count"}}, 2, 1)
	require.NoError(t, err)
	from := s.Resume(&CurriculumState{By: "success_rate", Pools: []tracked{{Open: []epoch{{0, []int{3}}}}}}, 5, []int{10})
	require.Equal(t, "mask_count", from.By)
	at := 10
	require.ElementsMatch(t, ids(data.Tasks), epochOf(s, &at, 7), "an epoch begins where the data was")
	for _, broken := range []*CurriculumState{
		nil,
		{By: "mask_count"},
		{By: "mask_count", Pools: []tracked{{}}},
		{By: "mask_count", Pools: []tracked{{Open: []epoch{{0, []int{7}}}}}},
		{By: "mask_count", Pools: []tracked{{Open: []epoch{{0, []int{-1}}}}}},
		{By: "mask_count", Pools: []tracked{{Open: []epoch{{0, []int{1}}, {2, []int{1}}}}}},
	} {
		require.False(t, broken.fits(s.curriculum))
	}
}

// A success is what the job's rewards say: the penalty of overlong shaping, which is a part of the reward that is trained, says nothing of it.
func TestSuccessRateReadsTheRewardBeforeOverlongShaping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "train.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"id": "long", "prompt": "?"}`+"\n"), 0o644))
	for _, c := range []struct {
		shaped  algorithms.Overlong
		success float64
	}{
		{algorithms.Overlong{Buffer: 10, Factor: 0.9}, 1},
		{algorithms.Overlong{}, 0}, // the part is that of a reward with this name
	} {
		least := 0.7
		j := &job.Job{
			Data:      job.Data{Train: job.Sources{{Path: path}}, Success: &least, Curriculum: &job.Curriculum{By: "success_rate"}},
			Algorithm: algorithms.Config{Overlong: c.shaped}, Rollout: job.Rollout{Groups: 1}, Seed: 1,
		}
		_, s, err := ReadTraining(j, nil)
		require.NoError(t, err)
		group := trajectory.Group{Task: trajectory.Task{ID: "long"}}
		for _, penalty := range []float64{-0.1, -0.3, -0.9} {
			group.Trajectories = append(group.Trajectories, &trajectory.Trajectory{Reward: 0.7 + penalty, RewardParts: map[string]float64{"overlong": penalty}})
		}
		s.Observe([]trajectory.Group{group}, []int{1})
		require.Equal(t, c.success, s.curriculum.state.Pools[0].Last["long"].Success)
	}
}
