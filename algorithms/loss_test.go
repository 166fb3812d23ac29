//go:build torch

package algorithms

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/cgo"
)

// twinOf returns the naive float64 twin of a loss: one token's policy term with its stop-gradient factors frozen.
func twinOf(a *Algorithm) func(current, old, advantage float64) float64 {
	s := a.LossSettings
	switch a.Loss.Name {
	case "ppo_clip":
		return func(current, old, advantage float64) float64 {
			ratio := math.Exp(current - old)
			loss := -math.Min(ratio*advantage, math.Min(math.Max(ratio, 1-s.ClipLow), 1+s.ClipHigh)*advantage)
			if s.DualClip > 0 && advantage < 0 {
				loss = math.Min(loss, -s.DualClip*advantage)
			}
			return loss
		}
	case "reinforce":
		return func(current, _, advantage float64) float64 { return -advantage * current }
	}
	panic("no twin of loss " + a.Loss.Name)
}

// twin is the objective of the rows in plain float64. off moves every advantage by that many rows: 0 is right.
func twin(a *Algorithm, current []float64, r Rows, off int) float64 {
	token := twinOf(a)
	total := 0.0
	for i, w := range r.Weight {
		if w == 0 {
			continue
		}
		old := r.Old[i]
		if a.Correction.Kind == CorrectionBypass {
			old = r.Sampling[i]
		}
		loss := a.Correction.Weight(old, r.Sampling[i]) * token(current[i], old, r.Advantage[(i+off)%len(r.Advantage)])
		if a.KL.Coefficient > 0 && a.KL.In == "loss" {
			loss += a.KL.Coefficient * a.KL.token(current[i], r.Reference[i])
		}
		total += w * loss
	}
	return total
}

// twinGradient is the twin's central difference.
func twinGradient(a *Algorithm, current []float64, r Rows, off int) []float64 {
	const h = 1e-6
	out := make([]float64, len(current))
	for i := range current {
		at := append([]float64(nil), current...)
		at[i] = current[i] + h
		up := twin(a, at, r, off)
		at[i] = current[i] - h
		out[i] = (up - twin(a, at, r, off)) / (2 * h)
	}
	return out
}

// evaluate runs Evaluate on a worker and checks that nothing leaks.
func evaluate(t testing.TB, a *Algorithm, current []float64, r Rows) (float64, []float64) {
	t.Helper()
	loss, err := a.NewLoss()
	require.NoError(t, err)
	w := cgo.NewWorker()
	defer w.Close()
	var value float64
	var gradient []float64
	before := cgo.LiveHandles()
	require.NoError(t, w.Do(context.Background(), func() error {
		value, gradient, err = a.Evaluate(loss, current, r)
		return err
	}))
	require.LessOrEqual(t, cgo.LiveHandles(), before)
	require.Len(t, gradient, len(current))
	return value, gradient
}

// allLosses are the blocks that every property test runs: each loss with the options that change its formula.
var allLosses = []string{
	"loss: ppo_clip",
	"{loss: ppo_clip, clip_low: 0.2, clip_high: 0.28}",
	"{loss: ppo_clip, dual_clip: 1.5}",
	"loss: reinforce",
	"{loss: reinforce, kl: {coefficient: 0.3, estimator: k2}}",
	"{loss: ppo_clip, kl: {coefficient: 0.3}, correction: {kind: tis_token, cap: 1.5}}",
	"{loss: ppo_clip, correction: {kind: icepop, low: 0.7, high: 1.4}}",
	"{loss: ppo_clip, correction: {kind: bypass}}",
}

// randomRows draws rows whose ratios lie on both sides of every clip, at a distance from all kinks.
func randomRows(rng *rand.Rand, a *Algorithm, n int) ([]float64, Rows) {
	var r Rows
	current := make([]float64, n)
	s := a.LossSettings
	for i := range n {
		r.Old = append(r.Old, -0.7-3*rng.Float64())
		r.Sampling = append(r.Sampling, r.Old[i]+rng.NormFloat64()*0.4)
		r.Reference = append(r.Reference, r.Old[i]+rng.NormFloat64()*0.4)
		r.Advantage = append(r.Advantage, rng.NormFloat64())
		r.Weight = append(r.Weight, 0.2+rng.Float64())
		base := r.Old[i]
		if a.Correction.Kind == CorrectionBypass {
			base = r.Sampling[i]
		}
		for near := true; near; {
			current[i] = base + rng.NormFloat64()*0.6
			near = false
			for _, kink := range []float64{1 - s.ClipLow, 1 + s.ClipHigh, s.DualClip} {
				near = near || math.Abs(math.Exp(current[i]-base)-kink) < 1e-3
			}
		}
	}
	return current, r
}

// inNorm requires |got - want| <= tolerance times the norm of want.
func inNorm(t testing.TB, want, got []float64, tolerance float64, msg string) {
	t.Helper()
	require.Len(t, got, len(want))
	require.LessOrEqual(t, distance(want, got), tolerance, msg)
}

func distance(want, got []float64) float64 {
	norm, diff := 0.0, 0.0
	for i := range want {
		norm += want[i] * want[i]
		diff += (want[i] - got[i]) * (want[i] - got[i])
	}
	return math.Sqrt(diff / norm)
}

func TestHandWorkedLosses(t *testing.T) {
	ln2 := math.Log(2)
	old := []float64{-3, -3, -3}
	current := []float64{-3 + ln2, -3 + ln2, -3 - ln2} // ratios 2, 2, 0.5
	advantage := []float64{2, -2, 2}
	one := []float64{1, 1, 1}
	for _, c := range []struct {
		block          string
		loss, gradient []float64
	}{
		{"{loss: ppo_clip, dual_clip: 1.5}", []float64{-2.4, 3, -1}, []float64{0, 0, -1}},
		{"{loss: ppo_clip}", []float64{-2.4, 4, -1}, []float64{0, 4, -1}},
		{"{loss: ppo_clip, clip_high: 1.5}", []float64{-4, 4, -1}, []float64{-4, 4, -1}},
		{"{loss: reinforce}", []float64{2 * (3 - ln2), -2 * (3 - ln2), 2 * (3 + ln2)}, []float64{-2, 2, -2}},
	} {
		a := resolve(t, c.block)
		for i := range one { // a row at a time, so that each value is seen
			v, g := evaluate(t, a, current[i:i+1], Rows{Old: old[i : i+1], Sampling: old[i : i+1], Advantage: advantage[i : i+1], Weight: one[i : i+1]})
			require.InDelta(t, c.loss[i], v, 1e-6, c.block)
			require.InDelta(t, c.gradient[i], g[0], 1e-6, c.block)
			require.InDelta(t, c.loss[i], twinOf(a)(current[i], old[i], advantage[i]), 1e-12)
		}
	}
	// k3 with reference - current = 2 and 1, coefficient 1, advantage 0; d k3/d current = 1 - exp(reference - current).
	v, g := evaluate(t, resolve(t, "{loss: reinforce, kl: {coefficient: 1}}"), []float64{-3, -2},
		Rows{Old: []float64{-3, -2}, Sampling: []float64{-3, -2}, Reference: []float64{-1, -1}, Advantage: []float64{0, 0}, Weight: []float64{1, 1}})
	require.InDelta(t, 4.389056+0.7182818, v, 1e-6)
	require.InDeltaSlice(t, []float64{1 - 7.389056, 1 - 2.7182818}, g, 1e-6)
	// tis_token multiplies the policy term: d = 1, cap 2, reinforce with A = 3 at current = -1.
	v, g = evaluate(t, resolve(t, "{loss: reinforce, correction: {kind: tis_token}}"), []float64{-1},
		Rows{Old: []float64{-1}, Sampling: []float64{-2}, Advantage: []float64{3}, Weight: []float64{0.5}})
	require.InDelta(t, 3, v, 1e-6)
	require.InDelta(t, -3, g[0], 1e-6)
}

// Property 1: what is off the mask touches neither value nor gradient.
func TestMaskedRowsDoNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, block := range allLosses {
		a := resolve(t, block)
		current, r := randomRows(rng, a, 6)
		value, gradient := evaluate(t, a, current, r)
		for _, junk := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1e300} {
			wideCurrent, wide := []float64{junk}, Rows{Old: []float64{junk}, Sampling: []float64{junk}, Reference: []float64{junk}, Advantage: []float64{junk}, Weight: []float64{0}}
			for i := range current { // a masked row behind each one
				wideCurrent = append(wideCurrent, current[i], junk)
				wide.Old, wide.Sampling = append(wide.Old, r.Old[i], junk), append(wide.Sampling, r.Sampling[i], junk)
				wide.Reference, wide.Advantage = append(wide.Reference, r.Reference[i], junk), append(wide.Advantage, r.Advantage[i], junk)
				wide.Weight = append(wide.Weight, r.Weight[i], 0)
			}
			v, g := evaluate(t, a, wideCurrent, wide)
			require.InDelta(t, value, v, 1e-6*math.Abs(value), block)
			for i := range g {
				if i%2 == 0 {
					require.Zero(t, g[i], "%s: junk %v", block, junk)
				} else {
					require.InDelta(t, gradient[i/2], g[i], 1e-6, block)
				}
			}
		}
		v, g := evaluate(t, a, []float64{math.NaN()}, Rows{Old: []float64{0}, Sampling: []float64{0}, Reference: []float64{0}, Advantage: []float64{1}, Weight: []float64{0}})
		require.Zero(t, v)
		require.Equal(t, []float64{0}, g)
	}
}

// Properties 2 and 5: value and gradient equal the twin's, and a twin that is off by one does not pass.
func TestLossesAgainstTheirTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, block := range allLosses {
		a := resolve(t, block)
		for range 20 {
			current, r := randomRows(rng, a, 8)
			value, gradient := evaluate(t, a, current, r)
			require.InDelta(t, twin(a, current, r, 0), value, 1e-6*(1+math.Abs(value)), block)
			inNorm(t, twinGradient(a, current, r, 0), gradient, 1e-6, block)
			require.Greater(t, distance(twinGradient(a, current, r, 1), gradient), 1e-2, "%s: the shifted twin passes", block)
		}
	}
}

// Property 3: the order of rows and the cut into micro-batches do not change the gradient.
func TestLossesIgnoreOrderAndMicroBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, block := range allLosses {
		a := resolve(t, block)
		current, r := randomRows(rng, a, 12)
		value, gradient := evaluate(t, a, current, r)
		order := rng.Perm(12)
		sum, merged := 0.0, make([]float64, 12)
		for _, part := range [][]int{order[:5], order[5:6], order[6:]} {
			var c []float64
			var p Rows
			for _, i := range part {
				c = append(c, current[i])
				p.Old, p.Sampling, p.Reference = append(p.Old, r.Old[i]), append(p.Sampling, r.Sampling[i]), append(p.Reference, r.Reference[i])
				p.Advantage, p.Weight = append(p.Advantage, r.Advantage[i]), append(p.Weight, r.Weight[i])
			}
			v, g := evaluate(t, a, c, p)
			sum += v
			for j, i := range part {
				merged[i] = g[j]
			}
		}
		require.InDelta(t, value, sum, 1e-6*(1+math.Abs(value)))
		inNorm(t, gradient, merged, 1e-6, block)
	}
}

// Property 4: on-policy, ppo_clip's gradient is reinforce's, whatever the clip range.
func TestOnPolicyPPOEqualsReinforce(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, clip := range []string{"", "clip_low: 0, clip_high: 0, ", "clip_high: 0.28, dual_clip: 3, "} {
		a := resolve(t, "{"+clip+"loss: ppo_clip}")
		current, r := randomRows(rng, a, 10)
		r.Old = current
		_, got := evaluate(t, a, current, r)
		_, want := evaluate(t, resolve(t, "loss: reinforce"), current, r)
		inNorm(t, want, got, 1e-7, clip)
	}
}

// own is a loss that a user might write: reinforce with a squared log-probability.
type own struct{ strength float64 }

func (own) Name() string { return "own" }

func (l own) PerToken(in LossInput) (gotorch.Tensor, error) {
	if l.strength < 0 {
		return gotorch.Tensor{}, errors.New("strength is negative")
	}
	if l.strength == 7 {
		return gotorch.Mul(in.Current, gotorch.Full([]int64{3}, 1, false)), nil // panics: three rows against two
	}
	squared := gotorch.Mul(in.Current, in.Current) // gotorch's own operations mix with in's
	return in.Affine(in.Mul(squared, in.Advantage), l.strength, 0), in.Err()
}

func TestRegisteredLoss(t *testing.T) {
	r := NewRegistry()
	require.NoError(t, r.AddLoss(LossSpec{Name: "own", Keys: []Key{{"strength", 1.0, "factor"}}, New: func(s Settings) (Loss, error) { return own{s.Float("strength")}, nil }}))
	w := cgo.NewWorker()
	defer w.Close()
	run := func(strength float64) (value float64, gradient []float64, err error) {
		a, err := Config{Loss: Choice{Name: "own", Keys: map[string]any{"strength": strength}}}.Resolve(r)
		require.NoError(t, err)
		loss, err := a.NewLoss()
		require.NoError(t, err)
		err = w.Do(context.Background(), func() (err error) {
			value, gradient, err = a.Evaluate(loss, []float64{-2, -3}, Rows{Old: []float64{0, 0}, Sampling: []float64{0, 0}, Advantage: []float64{1, -1}, Weight: []float64{1, 1}})
			return err
		})
		return value, gradient, err
	}
	value, gradient, err := run(2)
	require.NoError(t, err)
	require.InDelta(t, 2*(4-9), value, 1e-6)
	require.InDeltaSlice(t, []float64{2 * 2 * -2, -2 * 2 * -3}, gradient, 1e-6)
	_, _, err = run(-1)
	require.EqualError(t, err, "algorithms: loss own: strength is negative")
	_, _, err = run(7)
	var panicked *cgo.PanicError
	require.ErrorAs(t, err, &panicked)
	runtime.GC()
}

func TestObjectiveRefusesRowsThatAreNotParallel(t *testing.T) {
	a := resolve(t, "{}")
	loss, err := a.NewLoss()
	require.NoError(t, err)
	_, _, err = a.Evaluate(loss, []float64{-1}, Rows{Old: []float64{-1}, Sampling: []float64{-1}, Weight: []float64{1}})
	require.ErrorContains(t, err, "rows are not parallel: 1 weights, 1 old, 1 sampling, 0 advantages, 0 reference")
}
