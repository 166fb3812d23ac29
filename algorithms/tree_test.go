package algorithms

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomTree draws the leaves of a task's trees: every token is named by the trajectory that sampled it, and a leaf that forks off
// another one has the names of the other's up to the fork, between turns or within one.
func randomTree(rng *rand.Rand, leaves int) Group {
	type turn struct {
		name   string
		tokens int
	}
	var paths [][]turn
	var group Group
	for i := range leaves {
		var path []turn
		if i > 0 && rng.IntN(4) > 0 {
			parent := paths[rng.IntN(i)]
			path = slices.Clone(parent[:rng.IntN(len(parent))])
			if next := parent[len(path)]; next.tokens > 1 && rng.IntN(2) == 0 { // the same tokens have the same names: a leaf has fewer of them
				path = append(path, turn{next.name, 1 + rng.IntN(next.tokens-1)})
			}
		}
		for k := range 1 + rng.IntN(3) {
			path = append(path, turn{fmt.Sprintf("%d:%d:%d", i, len(path), k), 1 + rng.IntN(4)})
		}
		paths = append(paths, path)
		r := Record{Reward: float64(rng.IntN(5)) / 4}
		for _, t := range path {
			for at := range t.tokens {
				r.Shared, r.Tokens = append(r.Shared, fmt.Sprint(t.name, "+", at)), r.Tokens+1
			}
		}
		group = append(group, r)
	}
	return group
}

// starTree has leaves that share nothing that was sampled. What each is named after is its own.
func starTree(rng *rand.Rand, leaves int) Group {
	group := make(Group, leaves)
	for i := range group {
		group[i] = Record{Reward: rng.NormFloat64(), Tokens: 1 + rng.IntN(5)}
		group[i].Shared = slices.Repeat([]string{"leaf " + strconv.Itoa(i)}, group[i].Tokens)
	}
	return group
}

// Oracle: a tree whose branches part at the prompt is a group of chains. Then the values of nodes are the leaves' rewards, and the estimator is grpo's
// or rloo's own, to the bit.
func TestAStarTreeIsGRPOAndRLOO(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		star := starTree(rng, 1+rng.IntN(8))
		for block, plain := range map[string]string{
			"arpo": "grpo", "{name: arpo, mode: soft}": "grpo", "tree": "grpo", "{name: tree, inter: 0, global: 1}": "grpo", "{name: tree, inter: 0, intra: 0, local: 1}": "grpo",
			"{name: tree, normalize: mean}":                                            "{name: grpo, normalize_std: false}",
			"{name: tree, normalize: leave-one-out}":                                   "rloo",
			"{name: tree, inter: 0, global: 1, normalize: leave-one-out}":              "rloo",
			"{name: tree, inter: 0, local: 1, normalize: leave-one-out}":               "rloo",
			"{name: tree, shared: once, normalize: leave-one-out}":                     "rloo",
			"{name: tree, shared: sqrt, inter: 0, local: 1, normalize: leave-one-out}": "rloo",
		} {
			require.Equal(t, advantages(t, "advantage: "+plain, star), advantages(t, "advantage: "+block, star), block)
		}
	}
}

// Oracle: along the path of a leaf the steps of value add up to r - V(root), with V(root) the mean over all leaves.
func TestStepsOfValueAddUpToTheReward(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		group := randomTree(rng, 1+rng.IntN(16))
		root := mean(rewardsOf(group))
		got := advantages(t, "advantage: {name: tree, inter: 0, intra: 0, local: 1, normalize: mean}", group)[0]
		global := advantages(t, "advantage: {name: tree, inter: 0, intra: 0, global: 1, normalize: mean}", group)[0]
		members := leavesOf(group)
		for i, r := range group {
			sum, before := 0.0, ""
			for at, name := range r.Shared {
				if key := fmt.Sprint(members[name]); key != before { // a node: a run of tokens that the same leaves go through
					sum, before = sum+got[i][at], key
				}
				value := 0.0
				for _, k := range members[name] {
					value += group[k].Reward / float64(len(members[name]))
				}
				require.InDelta(t, value-root, global[i][at], 1e-9)
			}
			require.InDelta(t, r.Reward-root, sum, 1e-9)
		}
	}
}

// leavesOf are the leaves through each name, the dumb way.
func leavesOf(group Group) map[string][]int {
	out := map[string][]int{}
	for i, r := range group {
		for _, name := range r.Shared {
			if !slices.Contains(out[name], i) {
				out[name] = append(out[name], i)
			}
		}
	}
	return out
}

// gradient is, for each sampled token, the sum over its leaves of weight * advantage: what the token's log-probability gets from them while ratios
// are 1. Weights are those of an aggregation.
func gradient(group Group, adv [][]float64, weight func(r Record) float64) map[string]float64 {
	out := map[string]float64{}
	for i, r := range group {
		nth := map[string]int{}
		for at, name := range r.Shared {
			out[fmt.Sprintf("%s/%d", name, nth[name])] += weight(r) * adv[i][at]
			nth[name]++
		}
	}
	return out
}

func largestGap(a, b map[string]float64) float64 {
	gap := 0.0
	for k := range a {
		gap = max(gap, math.Abs(a[k]-b[k]))
	}
	return gap
}

// Oracle: with token-mean, the sum of the leaves' advantages on a token that d of them share is d times their mean, so that hard and soft attribution
// have one gradient. With seq-mean they have not, where lengths differ.
func TestSoftIsHardUnderTokenMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	differ := 0
	for range 300 {
		group := randomTree(rng, 2+rng.IntN(15))
		hard := advantages(t, "advantage: {name: arpo, mode: hard}", group)[0]
		soft := advantages(t, "advantage: {name: arpo, mode: soft}", group)[0]
		tokens := 0
		for _, r := range group {
			tokens += r.Tokens
		}
		byToken := func(Record) float64 { return 1 / float64(tokens) }
		bySequence := func(r Record) float64 { return 1 / float64(r.Tokens*len(group)) }
		require.Less(t, largestGap(gradient(group, hard, byToken), gradient(group, soft, byToken)), 1e-6)
		if largestGap(gradient(group, hard, bySequence), gradient(group, soft, bySequence)) > 1e-3 {
			differ++
		}
	}
	require.Greater(t, differ, 100)

	// By hand: two leaves of lengths 2 and 4 through one shared token, rewards 1 and 0: a is ±1/sqrt(2). seq-mean gives the shared token
	// (1/2)(1/2)a - (1/2)(1/4)a = a/8 softly, and 0 hardly.
	group := Group{{Reward: 1, Tokens: 2, Shared: []string{"t", "a"}}, {Reward: 0, Tokens: 4, Shared: []string{"t", "b", "b", "b"}}}
	bySequence := func(r Record) float64 { return 1 / float64(2*r.Tokens) }
	require.InDelta(t, math.Sqrt2/16, gradient(group, advantages(t, "advantage: {name: arpo, mode: soft}", group)[0], bySequence)["t/0"], 1e-6)
	require.InDelta(t, 0, gradient(group, advantages(t, "advantage: arpo", group)[0], bySequence)["t/0"], 1e-12)
}

// arpo's hard attribution is the estimator tree with the weight global alone, and its soft one with inter alone.
func TestARPOIsACaseOfTree(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		group := randomTree(rng, 2+rng.IntN(15))
		inDelta(t, advantages(t, "advantage: arpo", group)[0], advantages(t, "advantage: {name: tree, inter: 0, intra: 0, global: 1}", group)[0], 1e-9)
		inDelta(t, advantages(t, "advantage: {name: arpo, mode: soft}", group)[0], advantages(t, "advantage: {name: tree, intra: 0}", group)[0], 1e-9)
	}
}

// With shared: once the leaves of a token bring its advantage together once: the reward of a leaf counts once, and a shared token once.
func TestSharedTokensCountOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		group := randomTree(rng, 1+rng.IntN(16))
		value := advantages(t, "advantage: {name: tree, inter: 0, intra: 0, global: 1}", group)[0]
		once := gradient(group, advantages(t, "advantage: {name: tree, inter: 0, intra: 0, global: 1, shared: once}", group)[0], func(Record) float64 { return 1 })
		root := gradient(group, advantages(t, "advantage: {name: tree, inter: 0, intra: 0, global: 1, shared: sqrt}", group)[0], func(Record) float64 { return 1 })
		members := leavesOf(group)
		for i, r := range group {
			nth := map[string]int{}
			for at, name := range r.Shared {
				key := fmt.Sprintf("%s/%d", name, nth[name])
				require.InDelta(t, value[i][at], once[key], 1e-9)
				require.InDelta(t, value[i][at]*math.Sqrt(float64(len(members[name]))), root[key], 1e-9)
				nth[name]++
			}
		}
	}
}

// Tree-GRPO by hand: two trees, the first of two leaves that share token s, the second a chain. Rewards 1, 0, 0.5.
func TestTreeGRPO(t *testing.T) {
	group := Group{
		{Reward: 1, Tokens: 2, Shared: []string{"s", "a"}},
		{Reward: 0, Tokens: 2, Shared: []string{"s", "b"}},
		{Reward: 0.5, Tokens: 1, Shared: []string{"c"}},
	}
	// inter: std of 1, 0, 0.5 is 0.5: (1, -1, 0). intra: of 1, 0 it is sqrt(1/2): ±1/sqrt(2); the chain has none to compare with.
	x := 1 + math.Sqrt2/2
	inDelta(t, [][]float64{{x, x}, {-x, -x}, {0}}, advantages(t, "advantage: tree", group)[0], 1e-5)
	// EPTree by hand: leave-one-out rewards 0.75, -0.75, 0. V(s) = 0: A(s) = 0 - 0 + 0; A(a) = 0.75 + 0.75, and a shared token is divided by sqrt(2).
	group[1].Reward = 0.5 // leave-one-out: 0.5, -0.25, -0.25; V(s) = 0.125
	got := advantages(t, "advantage: {name: tree, inter: 0, intra: 0, local: 1, global: 1, normalize: leave-one-out, shared: sqrt}", group)[0]
	s := 2 * 0.125 / math.Sqrt2
	inDelta(t, [][]float64{{s, 0.375 + 0.5}, {s, -0.375 - 0.25}, {2 * -0.25}}, got, 1e-9)
}

func TestTreeRefusesWhatMeansNothing(t *testing.T) {
	for block, want := range map[string]string{
		"{name: tree, inter: 0, intra: 0}": "all weights are 0",
		"{name: tree, inter: -1}":          "inter is -1",
		"{name: tree, shared: twice}":      `shared is "twice"; allowed are leaf, sqrt, once`,
		"{name: tree, normalize: std}":     `normalize is "std"; allowed are mean-std, mean, leave-one-out`,
	} {
		c, err := read("advantage: " + block)
		if err == nil {
			_, err = c.Resolve(NewRegistry())
		}
		require.ErrorContains(t, err, want, block)
	}
}
