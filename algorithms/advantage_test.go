package algorithms

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// read reads an algorithm block of a job file the way package job does: the YAML of a value becomes JSON.
func read(block string) (Config, error) {
	var v any
	if err := yaml.Unmarshal([]byte(block), &v); err != nil {
		return Config{}, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return Config{}, err
	}
	return ParseJSON(data)
}

// resolve makes an algorithm from a YAML block; the test fails if it is refused.
func resolve(t testing.TB, block string) *Algorithm {
	t.Helper()
	c, err := read(block)
	require.NoError(t, err)
	a, err := c.Resolve(NewRegistry())
	require.NoError(t, err)
	return a
}

// groupsOf makes groups of trajectories with two tokens each.
func groupsOf(rewards ...[]float64) []Group {
	var out []Group
	for _, group := range rewards {
		var g Group
		for _, r := range group {
			g = append(g, Record{Reward: r, Tokens: 2, Anchors: []string{"start"}})
		}
		out = append(out, g)
	}
	return out
}

// firsts returns the first token's advantage of every trajectory and requires the others to be the same.
func firsts(t *testing.T, values [][][]float64) [][]float64 {
	t.Helper()
	out := make([][]float64, len(values))
	for g := range values {
		for _, v := range values[g] {
			require.Len(t, v, 2)
			require.Equal(t, v[0], v[1])
			out[g] = append(out[g], v[0])
		}
	}
	return out
}

func TestHandWorkedAdvantages(t *testing.T) {
	// grpo, rewards 1, 0, 0, 0: mean 1/4, squares 9/16 + 3/16 = 3/4, sample variance 3/4 / 3 = 1/4, std 1/2.
	// A = 3/4 / (1/2 + 1e-6) = 1.499997, -1/4 / (1/2 + 1e-6) = -0.499999.
	for _, c := range []struct {
		name, block string
		rewards     [][]float64
		want        [][]float64
	}{
		{"rloo", "advantage: rloo", [][]float64{{6, 3}, {9, 12}, {1}}, [][]float64{{3, -3}, {-3, 3}, {0}}},
		{"dr_grpo", "advantage: dr_grpo", [][]float64{{3, 0}, {0, 3}}, [][]float64{{1.5, -1.5}, {-1.5, 1.5}}},
		{"grpo", "advantage: grpo", [][]float64{{1, 0, 0, 0}}, [][]float64{{1.499997, -0.499999, -0.499999, -0.499999}}},
		{"grpo default", "{}", [][]float64{{1, 0, 0, 0}}, [][]float64{{1.499997, -0.499999, -0.499999, -0.499999}}},
		{"grpo without std", "advantage: {name: grpo, normalize_std: false}", [][]float64{{1, 0, 0, 0}}, [][]float64{{0.75, -0.25, -0.25, -0.25}}},
		{"maxrl", "advantage: maxrl", [][]float64{{1, 0, 0, 0}, {-3, 1}, {0, 0}}, [][]float64{{3, -1, -1, -1}, {0, 0}, {0, 0}}}, // a mean of -1 gives 0
		{"rloo of three", "advantage: rloo", [][]float64{{1, 2, 6}}, [][]float64{{-3, -1.5, 4.5}}},                              // minus the mean of the others: 1-4, 2-3.5, 6-1.5
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := resolve(t, c.block).Advantages(groupsOf(c.rewards...))
			require.NoError(t, err)
			for g, values := range firsts(t, got) {
				require.InDeltaSlice(t, c.want[g], values, 3e-11)
			}
		})
	}
}

func TestGroupWithoutVarianceIsExactlyZero(t *testing.T) {
	// Twelve times 0.1 sums to 1.0999999999999999 in float64, so a naive mean leaves a remainder in every advantage.
	same := make([]float64, 12)
	for i := range same {
		same[i] = 0.1
	}
	require.NotEqual(t, 0.1, mean(same), "the naive mean must miss the common value, or this test shows nothing")
	for _, block := range []string{"advantage: grpo", "advantage: {name: grpo, normalize_std: false}", "advantage: dr_grpo", "advantage: rloo", "advantage: maxrl", "advantage: opo", "advantage: arpo", "advantage: {name: gigpo, gamma: 1}"} {
		got, err := resolve(t, block).Advantages(groupsOf(same, []float64{7}))
		require.NoError(t, err)
		for _, values := range firsts(t, got) {
			for _, v := range values {
				require.Equal(t, math.Float64bits(0), math.Float64bits(v), block)
			}
		}
	}
}

// Three times 0.1 and -0.3 sum up to 5.6e-17 or to 0, by their order.
func TestMaxRLOfAMeanThatIsZeroButForRounding(t *testing.T) {
	a := resolve(t, "advantage: maxrl")
	for _, scale := range []float64{1, 1e-3, 123456789} {
		rounded := false
		for at := range 4 {
			rewards := []float64{0.1 * scale, 0.1 * scale, 0.1 * scale, 0.1 * scale}
			rewards[at] = -0.3 * scale
			rounded = rounded || mean(rewards) != 0
			got, err := a.Advantages(groupsOf(rewards))
			require.NoError(t, err)
			require.Equal(t, []float64{0, 0, 0, 0}, firsts(t, got)[0], "%v", rewards)
		}
		require.True(t, rounded, scale)
	}
	got, err := a.Advantages(groupsOf([]float64{1e-9, 0}))
	require.NoError(t, err)
	require.Equal(t, []float64{1, -1}, firsts(t, got)[0], "a mean that is not rounding")
}

func TestFailedAndEmptyTrajectoriesLeaveTheGroup(t *testing.T) {
	a := resolve(t, "advantage: dr_grpo")
	got, err := a.Advantages([]Group{
		{{Reward: 3, Tokens: 1}, {Reward: math.NaN(), Failed: true, Tokens: 4}, {Reward: 0, Tokens: 2}, {Reward: 100, Tokens: 0}},
		{{Failed: true, Tokens: 1}},
		{{Reward: 5, Tokens: 1}, {Failed: true, Tokens: 3}}, // one survivor: a group of one
		{},
	})
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{1.5}, nil, {-1.5, -1.5}, nil}, {nil}, {{0}, nil}, {}}, got)

	_, err = a.Advantages([]Group{{{Reward: 1, Tokens: 1}}, {{Reward: 0, Tokens: 1}, {Reward: math.Inf(1), Tokens: 1}}})
	require.EqualError(t, err, "algorithms: group 1, trajectory 1: reward is +Inf; a reward must be finite")
}

func TestAdvantagesOfAGroupSumToZero(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, block := range []string{"advantage: grpo", "advantage: dr_grpo", "advantage: rloo"} {
		a := resolve(t, block)
		for range 100 {
			rewards := make([]float64, 2+rng.IntN(9))
			for i := range rewards {
				rewards[i] = rng.NormFloat64()
			}
			got, err := a.Advantages(groupsOf(rewards))
			require.NoError(t, err)
			values := firsts(t, got)[0]
			require.InDelta(t, 0, mean(values), 1e-12)
		}
	}
}

func TestKLInTheReward(t *testing.T) {
	a := resolve(t, "{advantage: dr_grpo, kl: {coefficient: 0.5, estimator: k1, in: reward}}")
	// k1 sums: (-1 + 3) + (-2 + 2) = 2 and 0; rewards 3 - 1 = 2 and 0, mean 1.
	got, err := a.Advantages([]Group{{
		{Reward: 3, Tokens: 2, Old: []float64{-1, -2}, Reference: []float64{-3, -2}},
		{Reward: 0, Tokens: 1, Old: []float64{-1}, Reference: []float64{-1}},
	}})
	require.NoError(t, err)
	require.Equal(t, [][][]float64{{{1, 1}, {-1}}}, got)
	_, err = a.Advantages([]Group{{{Reward: 3, Tokens: 2, Old: []float64{-1, -2}}}})
	require.ErrorContains(t, err, "group 0, trajectory 0: kl in the reward needs old and reference logprobs of all 2 tokens, got 2 and 0")
}

func TestKLTokens(t *testing.T) {
	require.InDelta(t, 4.389056, KL{Estimator: "k3"}.token(-3, -1), 1e-6) // reference - current = 2: e² - 2 - 1
	require.InDelta(t, 0.7182818, KL{Estimator: "k3"}.token(-2, -1), 1e-7)
	require.Equal(t, 2.0, KL{Estimator: "k2"}.token(-3, -1))
	require.Equal(t, -2.0, KL{Estimator: "k1"}.token(-3, -1))
}

func TestCorrectionWeights(t *testing.T) {
	zero := make([]float64, 3)
	weights := func(block string, d ...float64) []float64 {
		return resolve(t, "correction: "+block).Correction.Weights(d, zero[:len(d)])
	}
	log := math.Log
	require.InDeltaSlice(t, []float64{1.6487, 0.6065, 2.0}, weights("{kind: tis_token}", 0.5, -0.5, 1.0), 5e-5)
	require.InDeltaSlice(t, []float64{0, 0.8, 0}, weights("{kind: icepop}", log(0.4), log(0.8), log(6)), 1e-12)
	require.Equal(t, []float64{1, 1}, weights("{kind: none}", -1, -9))
	require.Equal(t, []float64{1, 1}, weights("{kind: bypass}", -1, -9))
	// tis_sequence: the product of the trajectory's w, 2 * 3 * 0.5 = 3; with another 2 it is 6, above the cap of 5.
	require.InDeltaSlice(t, []float64{3, 3, 3}, weights("{kind: tis_sequence}", log(2), log(3), log(0.5)), 1e-12)
	require.InDeltaSlice(t, []float64{5, 5, 5}, weights("{kind: tis_sequence}", log(2), log(3), log(1)), 1e-12)
	require.InDeltaSlice(t, []float64{1.5, 1.5}, weights("{kind: tis_sequence, cap: 1.5}", log(2), log(3)), 1e-12)
	// seq_mask: geometric mean sqrt(4 * 0.25) = 1 is inside, and each token keeps min(w, 2); sqrt(0.5 * 0.1) = 0.22 is below 0.5.
	require.InDeltaSlice(t, []float64{2, 0.25}, weights("{kind: seq_mask}", log(4), log(0.25)), 1e-12)
	require.Equal(t, []float64{0, 0}, weights("{kind: seq_mask}", log(0.5), log(0.1)))
	require.Equal(t, []float64{0, 0}, weights("{kind: seq_mask, high: 1.1}", log(2), log(1)))
	require.InDeltaSlice(t, []float64{1.5, 1}, weights("{kind: seq_mask, cap: 1.5}", log(2), log(1)), 1e-12)
	// What overflows is outside of every range, and at every cap.
	require.Equal(t, []float64{5, 5}, weights("{kind: tis_sequence}", 1e6, 1))
	require.Equal(t, []float64{0, 0}, weights("{kind: seq_mask}", 1e6, 1))
}

func TestSequenceRatio(t *testing.T) {
	// Ratios 2, 2, 0.5: the geometric mean is 2^(1/3).
	ln2 := math.Log(2)
	require.InDelta(t, math.Cbrt(2), SequenceRatio([]float64{-1 + ln2, -2 + ln2, -3 - ln2}, []float64{-1, -2, -3}), 1e-12)
	require.Equal(t, 1.0, SequenceRatio(nil, nil))
}

func TestMeasure(t *testing.T) {
	// d = 1, -1: w = e, 1/e; k3 = (e - 2 + 1/e + 0)/2 = (e + 1/e - 2)/2.
	m := Measure([]float64{-1, -2}, []float64{-2, -1})
	require.Equal(t, 2, m.Tokens)
	require.InDelta(t, 1, m.MeanAbs, 1e-12)
	require.InDelta(t, 1, m.MaxAbs, 1e-12)
	require.InDelta(t, 0.5430806, m.K3, 1e-7)
	require.InDelta(t, 9.5243914/(2*7.5243914), m.ESS, 1e-7) // (Σw)² = e² + e⁻² + 2, Σw² = e² + e⁻²
	require.Equal(t, Mismatch{}, Measure(nil, nil))
	require.Equal(t, Mismatch{Tokens: 1, ESS: 1}, Measure([]float64{-3}, []float64{-3}))
}
