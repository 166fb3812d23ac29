package algorithms

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// paidOverTurns draws groups whose trajectories have a reward and rewards of turns. The rewards are multiples of 1/8, so that their sums are exact in
// any order. It returns the same batch three times: with the turns' rewards where they fell, all of them on the last turn, and in Reward.
func paidOverTurns(rng *rand.Rand, whole bool) (placed, last, folded []Group) {
	for _, group := range randomGroups(rng) {
		var p, l, f Group
		for _, r := range group {
			r.Reward, r.TurnRewards = 0, make([]*float64, r.turns())
			if whole {
				r.Reward = float64(rng.IntN(16)) / 8
			}
			sum := 0.0
			for k := range r.TurnRewards {
				if rng.IntN(3) > 0 {
					r.TurnRewards[k] = number(float64(rng.IntN(32)-8) / 8)
					sum += *r.TurnRewards[k]
				}
			}
			at, none := r, r
			at.TurnRewards = make([]*float64, r.turns())
			at.TurnRewards[r.turns()-1] = &sum
			none.Reward, none.TurnRewards = r.Reward+sum, nil
			p, l, f = append(p, r), append(l, at), append(f, none)
		}
		placed, last, folded = append(placed, p), append(last, l), append(folded, f)
	}
	return placed, last, folded
}

// What is paid on the last turn is worth what is paid to the trajectory, for every estimator; where in the trajectory it is paid makes no
// difference to those that give all its tokens one advantage.
func TestNoRewardOfATurnIsLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 7))
	covered := map[string]bool{}
	for _, block := range append([]string{"{name: reinforce_pp, group_baseline: true}", "{name: gigpo, normalize: mean}"}, everyEstimator...) {
		a := resolve(t, "advantage: "+block)
		covered[a.Estimator.Name] = true
		differs := false
		for range 50 {
			// first_occurrence gives the trajectory's reward to the latest turn that has none, so the two are one thing only where it is 0
			placed, last, folded := paidOverTurns(rng, !strings.Contains(block, "first_occurrence"))
			want, err := a.Advantages(folded)
			require.NoError(t, err)
			check := func(groups []Group, why string) {
				got, err := a.Advantages(groups)
				require.NoError(t, err)
				for g := range want {
					inDelta(t, want[g], got[g], 1e-12)
				}
				require.Len(t, got, len(want), "%s: %s", block, why)
			}
			check(last, "on the last turn")
			if !a.Estimator.Needs.Turns {
				check(placed, "on any turn")
			}
			for _, g := range want {
				for _, trajectory := range g {
					for _, x := range trajectory {
						differs = differs || x != 0
					}
				}
			}
		}
		require.True(t, differs, "%s: there was something to lose", block)
	}
	for _, s := range NewRegistry().Estimators() {
		require.True(t, covered[s.Name], "%s: is it in everyEstimator?", s.Name)
	}
}

// With a group baseline the return of a trajectory, over all its turns, is centred on the group's.
func TestTheGroupBaselineCentresReturns(t *testing.T) {
	groups := []Group{
		{
			{Reward: 1, Tokens: 2, Turn: []int{0, 1}, TurnRewards: []*float64{number(2), nil}},
			{Reward: 0, Tokens: 2, Turn: []int{0, 1}, TurnRewards: []*float64{nil, number(1)}},
		},
		{{Reward: 7, Tokens: 1}, {Reward: 5, Tokens: 1}},
	}
	// Returns 3 and 1, mean 2: what is left to come from each token on is (1, -1) and (-1, -1). The other group's mean is 6.
	want := [][][]float64{{{1, -1}, {-1, -1}}, {{1}, {-1}}}
	whiten(want)
	got := advantages(t, "advantage: {name: reinforce_pp, group_baseline: true}", groups...)
	for g := range want {
		inDelta(t, want[g], got[g], 1e-12)
	}
}

func TestTurnCreditGivesTheWholeReturn(t *testing.T) {
	r := Record{Reward: 3, Tokens: 4, Turn: []int{0, 0, 1, 2}, TurnRewards: []*float64{nil, number(0.5), nil}}
	require.Equal(t, [][]float64{{3.5, 3.5, 3.5, 3.5}}, advantages(t, "advantage: turn", Group{r})[0])
	require.Equal(t, [][]float64{{0.875, 0.875, 1.75, 3.5}}, advantages(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}", Group{r})[0])
}

// The lines of inspect loss have rewards of turns for estimators of whole trajectories too.
func TestInspectAddsTheRewardsOfTurns(t *testing.T) {
	line := `{"algorithm": {"advantage": "dr_grpo"}, "trajectories": [
		{"group": 0, "reward": 1, "response_mask": [1, 0, 1], "turn_rewards": [2, null]},
		{"group": 0, "reward": 1, "response_mask": [1]}]}`
	require.Equal(t, [][]float64{{1, 0, 1}, {-1}}, advantagesOf(t, line))
	require.Equal(t, [][]float64{{3, 0, 3}, {1}}, advantagesOf(t, strings.NewReplacer("dr_grpo", "turn").Replace(line)))
	got, err := inspectLines(t, strings.ReplaceAll(strings.Replace(line, "[2, null]", `"two"`, 1), "\n", " "))
	require.Error(t, err)
	require.Contains(t, got[0], "turn_rewards: ")
}
