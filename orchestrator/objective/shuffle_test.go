package objective

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// counted are groups of finished trajectories with rewards 1, 2, 3, …
func counted(groups, size int) []trajectory.Group {
	out := make([]trajectory.Group, groups)
	for g := range out {
		for i := range size {
			s := &trajectory.Sample{}
			_ = s.AppendResponse([]int32{1}, []float32{-1}, []int32{0})
			out[g].Trajectories = append(out[g].Trajectories, &trajectory.Trajectory{Reward: float64(g*size + i + 1), Samples: []*trajectory.Sample{s}})
		}
	}
	return out
}

// rewardsIn are the rewards of the trajectories that keep picks.
func rewardsIn(groups []trajectory.Group, keep func(*trajectory.Trajectory) bool) (out []float64) {
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if keep(t) {
				out = append(out, t.Reward)
			}
		}
	}
	return out
}

func all(*trajectory.Trajectory) bool { return true }

func isJudge(r trajectory.Role) bool { return r == "judge" }

// spokenBy makes a trajectory's token that of a role.
func spokenBy(r trajectory.Role) func(*trajectory.Trajectory) {
	return func(t *trajectory.Trajectory) {
		t.Turns = []trajectory.Turn{{CompletionEnd: 1, ObservationEnd: 1, Role: r}}
	}
}

// The control has the distribution of rewards that the run has: those of trajectories that count are permuted among themselves.
func TestShuffledRewardsStayWithWhatCounts(t *testing.T) {
	fails := func(t *trajectory.Trajectory) { t.Fail("environment", "gone") }
	cut := func(t *trajectory.Trajectory) {
		t.StopReason, t.Turns = trajectory.StopMaxTokens, []trajectory.Turn{{FinishReason: trajectory.FinishLength}}
	}
	for name, c := range map[string]struct {
		spoil     func(*trajectory.Trajectory)
		filterCut bool
	}{
		"failed": {fails, false}, "filtered": {cut, true}, "without tokens": {func(t *trajectory.Trajectory) { t.Samples = nil }, false},
		"frozen": {spokenBy("judge"), false}, "discarded": {spokenBy(trajectory.RoleDiscarded), false},
	} {
		t.Run(name, func(t *testing.T) {
			groups := counted(4, 4)
			out := map[*trajectory.Trajectory]bool{}
			for _, at := range [][2]int{{0, 1}, {2, 0}, {2, 3}, {3, 3}} {
				tr := groups[at[0]].Trajectories[at[1]]
				c.spoil(tr)
				out[tr], tr.Reward = true, 0
			}
			counts := func(tr *trajectory.Trajectory) bool { return !out[tr] }
			want := rewardsIn(groups, counts)
			shuffleRewards(groups, c.filterCut, isJudge, 3, 5)
			got := rewardsIn(groups, counts)
			require.NotEqual(t, want, got, "they moved")
			slices.Sort(got)
			require.Equal(t, want, got)
			require.Equal(t, []float64{0, 0, 0, 0}, rewardsIn(groups, func(tr *trajectory.Trajectory) bool { return out[tr] }))
		})
	}
}

// A group without its baseline says nothing, so that its rewards stay where they are.
func TestShuffledRewardsStayOutOfGroupsWithoutABaseline(t *testing.T) {
	groups := counted(3, 4)
	groups[1].Greedy = &trajectory.Trajectory{}
	groups[1].Greedy.Fail("engine", "gone")
	want := rewardsIn(groups[1:2], all)
	shuffleRewards(groups, false, nil, 3, 5)
	require.Equal(t, want, rewardsIn(groups[1:2], all))
	require.NotEqual(t, want, rewardsIn(groups[:1], all))
}

// Where nothing failed the permutation is the one of all trajectories; so is that of cut trajectories which count.
func TestShuffledRewardsOfWholeBatches(t *testing.T) {
	want := rewardsIn(counted(3, 4), all)
	rand.New(rand.NewPCG(3, 5)).Shuffle(len(want), func(i, k int) { want[i], want[k] = want[k], want[i] })
	for _, filterCut := range []bool{false, true} {
		groups := counted(3, 4)
		if !filterCut {
			groups[1].Trajectories[0].StopReason, groups[1].Trajectories[0].Turns = trajectory.StopMaxTokens, []trajectory.Turn{{FinishReason: trajectory.FinishLength}}
		}
		shuffleRewards(groups, filterCut, isJudge, 3, 5)
		require.Equal(t, want, rewardsIn(groups, all))
	}
}

// What agents post for calls is permuted as well, so that the control of a job whose reward is posted for calls does not learn.
func TestShuffledRewardsOfTurns(t *testing.T) {
	groups := counted(3, 4)
	paid := func(tr *trajectory.Trajectory) (out float64) {
		if tr.Turns[0].Reward != nil {
			out = *tr.Turns[0].Reward
		}
		return out
	}
	var before, after []float64
	n := 0
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			v := float64(n)
			tr.Reward, tr.Turns = 0, make([]trajectory.Turn, 1+n%3)
			tr.Turns[len(tr.Turns)-1].Reward, before = &v, append(before, v)
			n++
		}
	}
	firsts := 0
	shuffleRewards(groups, false, nil, 3, 5)
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			after = append(after, tr.Return())
			if paid(tr) > 0 {
				firsts++
			}
		}
	}
	require.NotEqual(t, before, after, "they moved")
	require.Positive(t, firsts, "the reward of a turn stays one of a turn")
	slices.Sort(after)
	require.Equal(t, before, after, "none is lost, however many turns the trajectories have")
}
