package algorithms

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func number(v float64) *float64 { return &v }

// advantages runs a block on groups; the test fails on an error.
func advantages(t *testing.T, block string, groups ...Group) [][][]float64 {
	t.Helper()
	got, err := resolve(t, block).Advantages(groups)
	require.NoError(t, err)
	return got
}

func inDelta(t *testing.T, want, got [][]float64, delta float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDeltaSlice(t, want[i], got[i], delta, "trajectory %d", i)
	}
}

func TestReinforcePP(t *testing.T) {
	// The sheet's returns before whitening. Rewards 1, 2, 3 for three tokens: 3, 2 + 0.5*3, 1 + 0.5*3.5.
	r := Record{Reward: 3, Tokens: 3, Turn: []int{0, 1, 2}, TurnRewards: []*float64{number(1), number(2), nil}}
	require.Equal(t, []float64{1, 2, 3}, r.tokenRewards())
	require.Equal(t, []float64{2.75, 3.5, 3}, discounted(r.tokenRewards(), 0.5))
	// One reward of 2, mask 1, 1, 0, 0, 1: the observation between is passed through.
	require.Equal(t, []float64{0.5, 1, 2}, discounted(Record{Reward: 2, Tokens: 3}.tokenRewards(), 0.5))

	// Whitened: mean 37/12, deviations -1/3, 5/12, -1/12, squares 16/144 + 25/144 + 1/144 = 42/144, var 21/144 with n - 1.
	std := math.Sqrt(21.0/144 + 1e-8)
	inDelta(t, [][]float64{{-1 / 3.0 / std, 5 / 12.0 / std, -1 / 12.0 / std}}, advantages(t, "advantage: {name: reinforce_pp, gamma: 0.5}", Group{r})[0], 1e-12)

	// Whitened over the batch, not over the group: returns 1, 1 | 3: mean 5/3, squares 4/9 + 4/9 + 16/9, var 4/3.
	std = math.Sqrt(4/3.0 + 1e-8)
	got := advantages(t, "advantage: reinforce_pp", Group{{Reward: 1, Tokens: 2}}, Group{{Reward: 3, Tokens: 1}})
	inDelta(t, [][]float64{{-2 / 3.0 / std, -2 / 3.0 / std}, {4 / 3.0 / std}}, [][]float64{got[0][0], got[1][0]}, 1e-12)

	// group_baseline: 1, 3 becomes -1, 1, and the group of one 0. Four returns -1, 1, 1, 0: mean 1/4, squares 44/16, var 11/12.
	std = math.Sqrt(11/12.0 + 1e-8)
	got = advantages(t, "advantage: {name: reinforce_pp, group_baseline: true}", Group{{Reward: 1, Tokens: 1}, {Reward: 3, Tokens: 2}}, Group{{Reward: 7, Tokens: 1}})
	inDelta(t, [][]float64{{-1.25 / std}, {0.75 / std, 0.75 / std}, {-0.25 / std}}, [][]float64{got[0][0], got[0][1], got[1][0]}, 1e-12)

	// Nothing to compare: exactly 0.
	require.Equal(t, [][][]float64{{{0, 0}, {0}}}, advantages(t, "advantage: reinforce_pp", Group{{Reward: 0.1, Tokens: 2}, {Reward: 0.1, Tokens: 1}}))
	require.Equal(t, [][][]float64{{{0}}}, advantages(t, "advantage: reinforce_pp", Group{{Reward: 5, Tokens: 1}}))
}

// TestGAEByHand works two cases out. A trajectory's response tokens only appear, so an observation gap between them is
// passed through; TestInspectOptionalFields has the same case with its gap.
func TestGAEByHand(t *testing.T) {
	a := resolve(t, "advantage: {name: gae, gamma: 0.5, lambda: 0.5}")
	// Finished, gamma = lambda = 1/2, reward 1 on the last of three tokens, values 1/2, 1/4, 1.
	//   δ_2 = 1 + 0 - 1            =  0        Â_2 = 0
	//   δ_1 = 0 + 1/2 * 1   - 1/4  =  1/4      Â_1 = 1/4 + 1/4 * 0     =  1/4
	//   δ_0 = 0 + 1/2 * 1/4 - 1/2  = -3/8      Â_0 = -3/8 + 1/4 * 1/4  = -5/16
	// Returns Â + V: 3/16, 1/2, 1.
	one := Record{Reward: 1, Tokens: 3, Values: []float64{0.5, 0.25, 1}}
	require.Equal(t, []float64{-0.3125, 0.25, 0}, a.Estimator.estimator.(gae).estimate(one))
	returns, err := a.Returns([]Group{{one}})
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{0.1875, 0.5, 1}}}, returns)
	// Whitened, in 48ths: -15, 12, 0 with mean -1, deviations -14, 13, 1, squares 196 + 169 + 1 = 366, var 183/48².
	std := math.Sqrt(183.0/2304 + 1e-8)
	got, err := a.Advantages([]Group{{one}})
	require.NoError(t, err)
	inDelta(t, [][]float64{{-14 / 48.0 / std, 13 / 48.0 / std, 1 / 48.0 / std}}, got[0], 1e-12)

	// Truncated, gamma 0.9, lambda 0.5, turns 0, 0, 1; turn 0 was paid 1, the trajectory 2; values 1, 2, 3, and 4 after the end.
	//   δ_2 = 2 + 0.9 * 4 - 3 = 2.6    Â_2 = 2.6
	//   δ_1 = 1 + 0.9 * 3 - 2 = 1.7    Â_1 = 1.7 + 0.45 * 2.6  = 2.87
	//   δ_0 = 0 + 0.9 * 2 - 1 = 0.8    Â_0 = 0.8 + 0.45 * 2.87 = 2.0915
	two := Record{Reward: 2, Tokens: 3, Turn: []int{0, 0, 1}, TurnRewards: []*float64{number(1), nil}, Values: []float64{1, 2, 3}, Bootstrap: 4}
	require.InDeltaSlice(t, []float64{2.0915, 2.87, 2.6}, gae{0.9, 0.5}.estimate(two), 1e-12)
	// The same, finished: δ_2 = 2 - 3 = -1, Â_1 = 1.7 - 0.45 = 1.25, Â_0 = 0.8 + 0.5625.
	two.Bootstrap = 0
	require.InDeltaSlice(t, []float64{1.3625, 1.25, -1}, gae{0.9, 0.5}.estimate(two), 1e-12)

	// lambda 1, gamma 1: the return minus the value, whatever the values after it.
	require.InDeltaSlice(t, []float64{2, 1, -1}, gae{1, 1}.estimate(two), 1e-12)
	none, err := resolve(t, "{}").Returns([]Group{{one}})
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestOPOAndReMax(t *testing.T) {
	// opo: baseline (1*3 + 3*1) / 4 = 1.5. All equal: exactly 0 although (0.1*3 + 0.1*7)/10 may round.
	got := advantages(t, "advantage: opo", Group{{Reward: 3, Tokens: 1}, {Reward: 1, Tokens: 3}}, Group{{Reward: 0.1, Tokens: 3}, {Reward: 0.1, Tokens: 7}}, Group{{Reward: 5, Tokens: 2}})
	require.Equal(t, [][]float64{{1.5}, {-0.5, -0.5, -0.5}}, got[0])
	require.Equal(t, make([]float64, 7), got[1][1])
	require.Equal(t, [][]float64{{0, 0}}, got[2])
	// remax: minus the greedy rollout's, also where all rewards are equal and in a group of one.
	got = advantages(t, "advantage: remax", Group{{Reward: 1, Tokens: 2, Greedy: number(0.25)}, {Reward: 1, Tokens: 1, Greedy: number(0.25)}}, Group{{Reward: 0, Tokens: 1, Greedy: number(1)}})
	require.Equal(t, [][][]float64{{{0.75, 0.75}, {0.75}}, {{-1}}}, got)
}

func TestTurnCredit(t *testing.T) {
	// Three turns of 2, 1 and 1 tokens; turn 1 was paid 0.5, the trajectory 3.
	r := Record{Reward: 3, Tokens: 4, Turn: []int{0, 0, 1, 2}, TurnRewards: []*float64{nil, number(0.5), nil}}
	paid := r
	paid.TurnRewards = []*float64{nil, number(0.5), number(0.25)} // the trajectory's reward goes back to turn 0, the latest without one
	full := r
	full.TurnRewards = []*float64{number(0), number(0.5), number(0.25)} // a reward of 0 is a reward: there is no place left
	require.Equal(t, [][]float64{{3.5, 3.5, 3.5, 3.5}}, advantages(t, "advantage: turn", Group{r})[0])
	require.Equal(t, [][]float64{{0, 0, 0.5, 3}, {3, 3, 0.5, 0.25}, {0, 0, 0.5, 0.25}}, advantages(t, "advantage: {name: turn, mode: first_occurrence}", Group{r, paid, full})[0])
	require.Equal(t, [][]float64{{0.875, 0.875, 1.75, 3.5}}, advantages(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}", Group{r})[0])
	require.Equal(t, [][]float64{{4, 4}}, advantages(t, "advantage: {name: turn, mode: discounted, gamma: 0.5}", Group{{Reward: 4, Tokens: 2}})[0])
}

func TestGiGPO(t *testing.T) {
	// Two trajectories of two turns; gamma 0.5, omega 2, mean. Returns 3 + 1 and 1: episode advantages 1.5, -1.5.
	// Step returns: first R = (1 + 0.5*3, 3) = (2.5, 3), second (0 + 0.5*1, 1) = (0.5, 1).
	// State a holds the first turns 2.5 and 0.5: mean 1.5, 1 and -1. b and c are alone: 0.
	a := Record{Reward: 3, Tokens: 3, Turn: []int{0, 0, 1}, TurnRewards: []*float64{number(1), nil}, Anchors: []string{"a", "b"}}
	b := Record{Reward: 1, Tokens: 2, Turn: []int{0, 1}, TurnRewards: nil, Anchors: []string{"a", "c"}}
	require.Equal(t, [][]float64{{3.5, 3.5, 1.5}, {-3.5, -1.5}}, advantages(t, "advantage: {name: gigpo, gamma: 0.5, omega: 2, normalize: mean}", Group{a, b})[0])
	// mean-std: both parts are ±x with sample std sqrt(2)x, so ±1/sqrt(2) up to the epsilon.
	inDelta(t, [][]float64{{math.Sqrt2, math.Sqrt2, math.Sqrt2 / 2}, {-math.Sqrt2, -math.Sqrt2 / 2}}, advantages(t, "advantage: {name: gigpo, gamma: 0.5}", Group{a, b})[0], 2e-6)
	// A state that one trajectory is in twice counts both turns: returns 3 + 0.5*3... here R = (0 + 0.5*4, 4) = (2, 4).
	twice := Record{Reward: 4, Tokens: 2, Turn: []int{0, 1}, Anchors: []string{"x", "x"}}
	require.Equal(t, [][]float64{{-1, 1}}, advantages(t, "advantage: {name: gigpo, gamma: 0.5, normalize: mean}", Group{twice})[0])
	// States are of a group: the same anchor in another group is another state.
	got := advantages(t, "advantage: {name: gigpo, normalize: mean}", Group{{Reward: 1, Tokens: 1, Anchors: []string{"a"}}}, Group{{Reward: 5, Tokens: 1, Anchors: []string{"a"}}})
	require.Equal(t, [][][]float64{{{0}}, {{0}}}, got)
}

func TestARPO(t *testing.T) {
	// A trunk of one token with leaves of rewards 1, 0, 0, the last of them with a token of its own beside it, shared by two.
	// std of 1, 0, 0 is 1/sqrt(3): a = (2/3, -1/3, -1/3) * sqrt(3).
	group := Group{
		{Reward: 1, Tokens: 2, Shared: []string{"trunk", ""}},
		{Reward: 0, Tokens: 3, Shared: []string{"trunk", "branch", ""}},
		{Reward: 0, Tokens: 2, Shared: []string{"trunk", "branch"}},
	}
	x := math.Sqrt(3) / 3
	inDelta(t, [][]float64{{0, 2 * x}, {0, -x, -x}, {0, -x}}, advantages(t, "advantage: arpo", group)[0], 3e-6)
	inDelta(t, [][]float64{{2 * x, 2 * x}, {-x, -x, -x}, {-x, -x}}, advantages(t, "advantage: {name: arpo, mode: soft}", group)[0], 3e-6)
	// A leaf that failed is not among the leaves through a token.
	group[2].Failed = true
	got := advantages(t, "advantage: arpo", group)[0]
	require.Nil(t, got[2])
	inDelta(t, [][]float64{{0, math.Sqrt2 / 2}, {0, -math.Sqrt2 / 2, -math.Sqrt2 / 2}}, got[:2], 3e-6)
	// Without a tree it is grpo.
	plain := groupsOf([]float64{1, 0, 0, 3})
	require.Equal(t, advantages(t, "advantage: grpo", plain...), advantages(t, "advantage: arpo", plain...))
}

func TestRecordsThatDoNotFitAreRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		block string
		r     Record
		want  string
	}{
		{"advantage: remax", Record{Tokens: 1}, "the reward of a greedy rollout of its task is missing"},
		{"advantage: remax", Record{Tokens: 1, Greedy: &nan}, "the greedy rollout's reward is NaN; a reward must be finite"},
		{"advantage: gae", Record{Tokens: 2, Values: []float64{1}}, "1 values for 2 tokens; each token needs one"},
		{"advantage: gae", Record{Tokens: 2, Values: []float64{1, inf}}, "the value at response token 1 is +Inf; a value must be finite"},
		{"advantage: gae", Record{Tokens: 1, Values: []float64{1}, Bootstrap: nan}, "the value after the last token is NaN; a value must be finite"},
		{"advantage: gigpo", Record{Tokens: 2, Turn: []int{0, 1}, Anchors: []string{"a"}}, "1 anchors for 2 turns; each turn needs one"},
		{"advantage: turn", Record{Tokens: 2, Turn: []int{1}}, "1 turn indices for 2 tokens; each token needs one"},
		{"advantage: turn", Record{Tokens: 2, Turn: []int{1, 0}}, "response token 1 is of turn 0, the one before it of turn 1; turns begin at 0 and never fall"},
		{"advantage: turn", Record{Tokens: 1, Turn: []int{-1}}, "response token 0 is of turn -1, the one before it of turn 0; turns begin at 0 and never fall"},
		{"advantage: turn", Record{Tokens: 2, Turn: []int{0, math.MaxInt/2 + 1}}, "response token 1 is of turn 4611686018427387904; a trajectory has at most 1048576 turns"},
		{"advantage: {name: turn, mode: discounted}", Record{Tokens: 1, Turn: []int{math.MaxInt}}, "response token 0 is of turn 9223372036854775807; a trajectory has at most 1048576 turns"},
		{"advantage: gigpo", Record{Tokens: 2, Turn: []int{0, math.MaxInt}, Anchors: []string{"a"}}, "response token 1 is of turn 9223372036854775807; a trajectory has at most 1048576 turns"},
		{"advantage: gigpo", Record{Tokens: 2, Turn: []int{0, maxTurns}, Anchors: []string{"a"}}, "response token 1 is of turn 1048576; a trajectory has at most 1048576 turns"},
		{"advantage: reinforce_pp", Record{Tokens: 1, TurnRewards: []*float64{&inf}}, "the reward of turn 0 is +Inf; a reward must be finite"},
		{"advantage: reinforce_pp", Record{Tokens: 1, TurnRewards: []*float64{nil, number(1)}}, "turn 1 has a reward, but no response token that it could sit on"},
		{"advantage: arpo", Record{Tokens: 2, Shared: []string{"a"}}, "the tree names 1 tokens of 2"},
		{"advantage: grpo", Record{Tokens: 1, Reward: inf}, "reward is +Inf; a reward must be finite"},
	} {
		_, err := resolve(t, c.block).Advantages([]Group{{{Failed: true}}, {{Reward: 1}, c.r}})
		require.EqualError(t, err, "algorithms: group 1, trajectory 1: "+c.want, c.block)
		var at *TrajectoryError
		require.ErrorAs(t, err, &at)
		require.Equal(t, strings.Contains(c.want, "must be finite"), at.NonFinite, c.want)
	}
	// Finite rewards whose differences are not, and ones whose spread is not.
	for block, rewards := range map[string][]float64{
		"advantage: dr_grpo": {math.MaxFloat64, -math.MaxFloat64, -math.MaxFloat64},
		"advantage: grpo":    {1e200, -1e200}, "advantage: gigpo": {1e200, -1e200}, "advantage: reinforce_pp": {1e200, -1e200},
	} {
		groups := groupsOf(rewards)
		for i := range groups[0] {
			groups[0][i].Anchors = []string{"a"}
		}
		_, err := resolve(t, block).Advantages(groups)
		require.ErrorContains(t, err, "algorithms: group 0, trajectory 0: the estimator gives", block)
		var at *TrajectoryError
		require.ErrorAs(t, err, &at)
		require.True(t, at.NonFinite)
	}
}

// everyEstimator is each estimator with the options that change its formula.
var everyEstimator = []string{
	"grpo", "{name: grpo, normalize_std: false}", "dr_grpo", "rloo", "maxrl", "opo", "remax", "{name: reinforce_pp, gamma: 0.9}",
	"{name: reinforce_pp, gamma: 0.9, group_baseline: true}", "{name: gae, gamma: 0.9, lambda: 0.8}", "{name: gigpo, gamma: 0.7, omega: 0.5}",
	"turn", "{name: turn, mode: first_occurrence}", "{name: turn, mode: discounted, gamma: 0.5}", "arpo", "{name: arpo, mode: soft}",
	"tree", "{name: tree, local: 0.5, global: 2, shared: sqrt}", "{name: tree, inter: 0, normalize: leave-one-out, shared: once}",
}

// randomGroups draws records with every field filled in.
func randomGroups(rng *rand.Rand) []Group {
	groups := make([]Group, 1+rng.IntN(3))
	for g := range groups {
		greedy := rng.Float64()
		for range 1 + rng.IntN(5) {
			r := Record{Reward: float64(rng.IntN(3)), Greedy: &greedy, Bootstrap: rng.NormFloat64()}
			for k := range 1 + rng.IntN(3) {
				if k > 0 || rng.IntN(2) > 0 {
					r.TurnRewards = append(r.TurnRewards, number(rng.NormFloat64()))
				} else {
					r.TurnRewards = append(r.TurnRewards, nil)
				}
				r.Anchors = append(r.Anchors, string(rune('a'+rng.IntN(2))))
				for range 1 + rng.IntN(3) {
					r.Turn, r.Values = append(r.Turn, k), append(r.Values, rng.NormFloat64())
					r.Shared = append(r.Shared, []string{"", "trunk", "branch"}[min(r.Tokens, rng.IntN(3))])
					r.Tokens++
				}
			}
			groups[g] = append(groups[g], r)
		}
	}
	return groups
}

func TestEstimatorsIgnoreOrderAndWhatFailed(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, name := range everyEstimator {
		a := resolve(t, "advantage: "+name)
		for range 30 {
			groups := randomGroups(rng)
			want, err := a.Advantages(groups)
			require.NoError(t, err)
			order, shuffled := rng.Perm(len(groups)), make([]Group, len(groups))
			inner := make([][]int, len(groups))
			for to, from := range order {
				inner[to] = rng.Perm(len(groups[from]))
				for _, i := range inner[to] {
					shuffled[to] = append(shuffled[to], groups[from][i], Record{Failed: true, Reward: math.NaN(), Tokens: 3}, Record{Reward: math.Inf(1)})
				}
			}
			got, err := a.Advantages(shuffled)
			require.NoError(t, err)
			for to, from := range order {
				for at, i := range inner[to] {
					require.InDeltaSlice(t, want[from][i], got[to][3*at], 1e-9, name)
					require.Nil(t, got[to][3*at+1])
					require.Nil(t, got[to][3*at+2])
				}
			}
		}
	}
}

func TestNeedsSiblings(t *testing.T) {
	without := map[string]bool{
		"remax": true, "{name: reinforce_pp, gamma: 0.9}": true, "{name: gae, gamma: 0.9, lambda: 0.8}": true,
		"{name: gigpo, gamma: 0.7, omega: 0.5}": true, // its turns are compared within a trajectory too
		"turn":                                  true, "{name: turn, mode: first_occurrence}": true, "{name: turn, mode: discounted, gamma: 0.5}": true,
	}
	for _, name := range everyEstimator {
		require.Equal(t, !without[name], resolve(t, "advantage: "+name).Estimator.NeedsSiblings(), name)
	}
}

func TestOneSurvivor(t *testing.T) {
	// What a trajectory gets whose siblings all failed: nothing to compare with, so 0 under every group baseline.
	want := map[string]float64{"remax": 2 - 0.5, "turn": 2, "{name: turn, mode: discounted, gamma: 0.5}": 2, "{name: turn, mode: first_occurrence}": 2}
	for _, name := range everyEstimator {
		got := advantages(t, "advantage: "+name, Group{{Failed: true, Tokens: 1}, {Reward: 2, Tokens: 1, Greedy: number(0.5), Values: []float64{1}, Anchors: []string{"a"}}, {Reward: 1}})
		require.Equal(t, [][][]float64{{nil, {want[name]}, nil}}, got, name)
	}
	for _, name := range everyEstimator { // nothing at all
		require.Equal(t, [][][]float64{{nil}, {}}, advantages(t, "advantage: "+name, Group{{Failed: true, Tokens: 1}}, Group{}), name)
	}
}
