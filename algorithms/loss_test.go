//go:build torch

package algorithms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/internal/panics"
)

// point is where an objective is evaluated: the outputs of a forward, [N] each.
type point struct{ current, entropy, values []float64 }

// flat is the point as one vector, of which gradients are taken.
func (p point) flat() []float64 { return slices.Concat(p.current, p.entropy, p.values) }

func unflat(v []float64) point {
	n := len(v) / 3
	return point{v[:n:n], v[n : 2*n : 2*n], v[2*n:]}
}

// batch is rows with the trajectories that they belong to.
type batch struct {
	at         point
	rows       Rows
	trajectory []int // [N]
}

// policyTwins are the losses in plain float64, one token each: x is where the policy is, base where it stood when the
// stop-gradient factors were taken (the same number, but a finite difference moves x alone).
var policyTwins = map[string]func(s Settings, x, base, old, sampling, sequence, advantage float64) float64{
	"ppo_clip": func(s Settings, x, _, old, _, _, advantage float64) float64 {
		ratio := math.Exp(x - old)
		loss := -math.Min(ratio*advantage, math.Min(math.Max(ratio, 1-s.ClipLow), 1+s.ClipHigh)*advantage)
		if s.DualClip > 0 && advantage < 0 {
			loss = math.Min(loss, -s.DualClip*advantage)
		}
		return loss
	},
	"gspo": func(s Settings, x, base, _, _, sequence, advantage float64) float64 {
		ratio := sequence * math.Exp(x-base)
		return -math.Min(ratio*advantage, math.Min(math.Max(ratio, 1-s.ClipLow), 1+s.ClipHigh)*advantage)
	},
	"cispo": func(s Settings, x, base, old, _, _, advantage float64) float64 {
		limit := 1 + s.ClipHigh
		if s.String("bound") == "absolute" {
			limit = s.ClipHigh
		}
		return -math.Min(math.Exp(base-old), limit) * advantage * x
	},
	"reinforce": func(_ Settings, x, _, _, _, _, advantage float64) float64 { return -advantage * x },
	"sapo": func(s Settings, x, _, old, _, _, advantage float64) float64 {
		tau := s.Float("tau_positive")
		if advantage < 0 {
			tau = s.Float("tau_negative")
		}
		return -advantage * 4 / tau / (1 + math.Exp(-tau*(math.Exp(x-old)-1)))
	},
	"dppo": func(s Settings, x, base, old, sampling, _, advantage float64) float64 {
		moved := math.Exp(base) - math.Exp(sampling)
		if moved > s.Float("delta") && advantage > 0 || moved < -s.Float("delta") && advantage < 0 {
			return 0
		}
		return -math.Exp(x-old) * advantage
	},
}

// twin is the objective in plain float64 at x, with its stop-gradient factors frozen at b.at. off moves the rows by that
// many against the outputs: 0 is right.
func twin(a *Algorithm, x point, b batch, off int) float64 {
	n := len(b.trajectory)
	row := func(v []float64, i int) float64 { return v[(i+off)%n] }
	old := func(i int) float64 {
		if a.Correction.Kind == CorrectionBypass {
			return row(b.rows.Sampling, i)
		}
		return row(b.rows.Old, i)
	}
	drift, mismatch, length := map[int]float64{}, map[int]float64{}, map[int]float64{}
	for i, u := range b.trajectory {
		if b.rows.Weight[i] != 0 {
			drift[u] += b.at.current[i] - old(i)
			mismatch[u] += old(i) - row(b.rows.Sampling, i)
			length[u]++
		}
	}
	total := 0.0
	for i, w := range b.rows.Weight {
		if w == 0 {
			continue
		}
		u := b.trajectory[i]
		token := math.Exp(old(i) - row(b.rows.Sampling, i))
		c, correction := a.Correction, 1.0
		inside := func(w float64) bool { return w >= c.Low && w <= c.High }
		switch {
		case c.Kind == CorrectionTIS, c.Kind == CorrectionSeqMask && inside(math.Exp(mismatch[u]/length[u])):
			correction = math.Min(token, c.Cap)
		case c.Kind == CorrectionTISSequence:
			correction = math.Min(math.Exp(mismatch[u]), c.Cap)
		case c.Kind == CorrectionIcePop && inside(token):
			correction = token
		case c.Kind == CorrectionIcePop, c.Kind == CorrectionSeqMask:
			correction = 0
		}
		policy := policyTwins[a.Loss.Name](a.Loss.Settings, x.current[i], b.at.current[i], old(i), row(b.rows.Sampling, i), math.Exp(drift[u]/length[u]), row(b.rows.Advantage, i))
		loss := correction*policy - a.Entropy*x.entropy[i]
		if a.KL.inLoss() {
			d := x.current[i] - row(b.rows.Reference, i)
			loss += a.KL.Coefficient * map[string]float64{"k2": d * d / 2, "k3": math.Exp(-d) + d - 1}[a.KL.Estimator]
		}
		total += w * loss
		if a.HasCritic() {
			target, before := row(b.rows.Return, i), row(b.rows.OldValue, i)
			near := math.Min(math.Max(x.values[i], before-a.Value.Clip), before+a.Value.Clip)
			total += b.rows.ValueWeight * a.Value.Coefficient / 2 * math.Max(math.Pow(x.values[i]-target, 2), math.Pow(near-target, 2))
		}
	}
	return total
}

// twinGradient is the twin's central difference; smooth is false where a kink lies in its way.
func twinGradient(a *Algorithm, b batch, off int) (gradient []float64, smooth bool) {
	const h = 1e-6
	at, middle := b.at.flat(), twin(a, b.at, b, off)
	gradient, smooth = make([]float64, len(at)), true
	for i, x := range at {
		at[i] = x + h
		up := twin(a, unflat(at), b, off)
		at[i] = x - h
		down := twin(a, unflat(at), b, off)
		at[i] = x
		gradient[i] = (up - down) / (2 * h)
		smooth = smooth && math.Abs((up-middle)-(middle-down)) < 1e-4*h
	}
	return gradient, smooth
}

// evaluateAt runs the objective of training in float64, with its gradient with respect to all outputs, and checks that
// nothing leaks.
func evaluateAt(t testing.TB, a *Algorithm, b batch) (value float64, gradient []float64) {
	t.Helper()
	loss, err := a.Loss.NewLoss()
	require.NoError(t, err)
	w := cgo.NewWorker()
	defer w.Close()
	before := cgo.LiveHandles()
	require.NoError(t, w.Do(context.Background(), func() error {
		o, inner := &Ops{wide: true}, &Ops{wide: true}
		defer o.close(gotorch.Tensor{})
		var leaves, outputs [3]gotorch.Tensor
		for i, v := range [][]float64{b.at.current, b.at.entropy, b.at.values} {
			leaves[i] = o.do(func() (gotorch.Tensor, error) { return gotorch.Full([]int64{int64(len(v))}, 0, true), nil })
			outputs[i] = o.Add(leaves[i], o.floats(nil, v))
		}
		total, err := a.objective(inner, nil, loss, Outputs{outputs[0], outputs[1], outputs[2]}, b.rows)
		if err != nil {
			return err
		}
		defer cgo.CloseTensor(total)
		if value, err = double(inner, total); err != nil {
			return err
		}
		// Every leaf must be in the graph, or it has no gradient to read.
		whole := o.Add(total, o.Affine(o.MaskedSum(o.Add(leaves[0], o.Add(leaves[1], leaves[2])), o.floats(nil, slices.Repeat([]float64{1}, len(b.trajectory)))), 0, 0))
		if err := cgo.Backward(whole); err != nil {
			return err
		}
		for _, leaf := range leaves {
			g, err := cgo.Read(o.do(func() (gotorch.Tensor, error) { return leaf.Grad(), nil }))
			if err != nil {
				return err
			}
			for _, x := range g {
				gradient = append(gradient, float64(x))
			}
		}
		return o.err
	}))
	require.LessOrEqual(t, cgo.LiveHandles(), before)
	return value, gradient
}

// evaluate runs Evaluate on a worker and checks that nothing leaks.
func evaluate(t testing.TB, a *Algorithm, current []float64, r Rows) (float64, []float64) {
	t.Helper()
	loss, err := a.Loss.NewLoss()
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

// allLosses are the blocks that every property test runs: each loss with the options that change its formula, and each term
// that is added to a loss.
var allLosses = []string{
	"loss: ppo_clip",
	"{loss: ppo_clip, clip_low: 0.2, clip_high: 0.28}",
	"{loss: ppo_clip, dual_clip: 1.5}",
	"loss: reinforce",
	"{loss: reinforce, kl: {coefficient: 0.3, estimator: k2}}",
	"{loss: ppo_clip, kl: {coefficient: 0.3}, correction: {kind: tis_token, cap: 1.5}}",
	"{loss: ppo_clip, correction: {kind: icepop, low: 0.7, high: 1.4}}",
	"{loss: ppo_clip, correction: {kind: bypass}}",
	"{loss: ppo_clip, correction: {kind: tis_sequence, cap: 1.5}}",
	"{loss: reinforce, correction: {kind: seq_mask, low: 0.8, high: 1.3, cap: 1.1}}",
	"loss: gspo",
	"{loss: gspo, clip_low: 0.3, clip_high: 0.5}",
	"{loss: gspo, clip_high: 0.5, correction: {kind: bypass}}",
	"loss: {name: cispo, bound: relative}",
	"{loss: {name: cispo, bound: absolute}, clip_high: 1.5, correction: {kind: tis_token}}",
	"loss: sapo",
	"loss: {name: sapo, tau_positive: 0.5, tau_negative: 3}",
	"loss: dppo",
	"loss: {name: dppo, delta: 0.02}",
	"{loss: ppo_clip, entropy: 0.3}",
	"{advantage: gae, loss: ppo_clip}",
	"{advantage: gae, loss: dppo, value: {coefficient: 2, clip: 0.6}, entropy: 0.1, kl: {coefficient: 0.1}, correction: {kind: tis_token}}",
}

// randomBatch draws trajectories of one to four rows whose ratios lie on both sides of every clip.
func randomBatch(rng *rand.Rand, a *Algorithm, n int) batch {
	var b batch
	r := &b.rows
	for i := range n {
		if i == 0 || rng.IntN(4) == 0 {
			b.trajectory = append(b.trajectory, i)
		} else {
			b.trajectory = append(b.trajectory, b.trajectory[i-1])
		}
		r.Old = append(r.Old, -0.7-3*rng.Float64())
		r.Sampling = append(r.Sampling, r.Old[i]+rng.NormFloat64()*0.4)
		r.Reference = append(r.Reference, r.Old[i]+rng.NormFloat64()*0.4)
		r.Advantage = append(r.Advantage, rng.NormFloat64())
		r.Weight = append(r.Weight, 0.2+rng.Float64())
		r.Return, r.OldValue = append(r.Return, rng.NormFloat64()), append(r.OldValue, rng.NormFloat64())
		b.at.current = append(b.at.current, r.Old[i]+rng.NormFloat64()*0.6)
		b.at.entropy = append(b.at.entropy, 3*rng.Float64())
		b.at.values = append(b.at.values, r.OldValue[i]+rng.NormFloat64()*0.4)
	}
	r.ValueWeight = 1 / float64(n)
	b.complete(a)
	return b
}

// complete fills in what the trainer computes over whole trajectories.
func (b *batch) complete(a *Algorithm) {
	b.rows.Sequence, b.rows.Correction = make([]float64, len(b.trajectory)), make([]float64, len(b.trajectory))
	for _, u := range b.trajectory {
		var at []int
		var current, old, sampling []float64
		for i, v := range b.trajectory {
			if v == u && b.rows.Weight[i] != 0 {
				at = append(at, i)
				current, old, sampling = append(current, b.at.current[i]), append(old, b.rows.Old[i]), append(sampling, b.rows.Sampling[i])
			}
		}
		weights := a.Correction.Weights(old, sampling)
		if a.Correction.Kind == CorrectionBypass {
			old = sampling
		}
		for k, i := range at {
			b.rows.Sequence[i], b.rows.Correction[i] = SequenceRatio(current, old), weights[k]
		}
	}
}

// columns are the lists of a batch that run over its rows.
func (b *batch) columns() []*[]float64 {
	r := &b.rows
	return []*[]float64{
		&b.at.current, &b.at.entropy, &b.at.values, &r.Old, &r.Sampling, &r.Advantage, &r.Weight, &r.Reference, &r.Sequence, &r.Correction, &r.OldValue, &r.Return,
	}
}

// take is the batch of the rows at, in that order.
func (b batch) take(at []int) batch {
	out := b
	from, to := b.columns(), out.columns()
	for c := range from {
		values := *from[c]
		*to[c] = nil
		for _, i := range at {
			*to[c] = append(*to[c], values[i])
		}
	}
	out.trajectory = nil
	for _, i := range at {
		out.trajectory = append(out.trajectory, b.trajectory[i])
	}
	return out
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
		// A trajectory of one token: gspo's s is its ratio, and the formula is ppo_clip's.
		{"{loss: gspo, clip_low: 0.2, clip_high: 0.2}", []float64{-2.4, 4, -1}, []float64{0, 4, -1}},
		// cispo: weights min(2, 1.2), min(2, 1.2), 0.5 on -A * current; the gradient is -weight * A.
		{"loss: {name: cispo, bound: relative}", []float64{-2.4 * (-3 + ln2), 2.4 * (-3 + ln2), -1 * (-3 - ln2)}, []float64{-2.4, 2.4, -1}},
		{"{loss: {name: cispo, bound: absolute}, clip_high: 1.5}", []float64{-3 * (-3 + ln2), 3 * (-3 + ln2), -1 * (-3 - ln2)}, []float64{-3, 3, -1}},
		// sapo, tau 1: -A * 4 * σ(ρ - 1), gradient -A * 4 * σ' * ρ with σ(1) = 0.7310586, σ'(1) = 0.1966119, σ(-1/2) = 0.3775407,
		// σ'(-1/2) = 0.2350037. tau 2 for A < 0: 2 * 2 * σ(2) = 4 * 0.8807971, gradient 2 * 4 * σ'(2) * 2 = 16 * 0.1049936.
		{"loss: {name: sapo, tau_negative: 2}", []float64{-8 * 0.7310586, 4 * 0.8807971, -8 * 0.3775407}, []float64{-16 * 0.1966119, 16 * 0.1049936, -4 * 0.2350037}},
		// dppo: the probability goes from e^-3 = 0.0498 to 0.0996, 0.0996, 0.0249: it moves by 0.0498 up, up, 0.0249 down. Only the
		// first goes by more than delta in the direction of its advantage.
		{"loss: {name: dppo, delta: 0.03}", []float64{0, 4, -1}, []float64{0, 4, -1}},
		{"loss: dppo", []float64{-4, 4, -1}, []float64{-4, 4, -1}},
		{"{loss: reinforce}", []float64{2 * (3 - ln2), -2 * (3 - ln2), 2 * (3 + ln2)}, []float64{-2, 2, -2}},
	} {
		a := resolve(t, c.block)
		for i := range one { // a row at a time, so that each value is seen
			v, g := evaluate(t, a, current[i:i+1], Rows{
				Old: old[i : i+1], Sampling: old[i : i+1], Advantage: advantage[i : i+1], Weight: one[i : i+1],
				Sequence: []float64{math.Exp(current[i] - old[i])}, // a trajectory of one token
			})
			require.InDelta(t, c.loss[i], v, 1e-6, c.block)
			require.InDelta(t, c.gradient[i], g[0], 1e-6, c.block)
			twin := policyTwins[a.Loss.Name](a.Loss.Settings, current[i], current[i], old[i], old[i], math.Exp(current[i]-old[i]), advantage[i])
			require.InDelta(t, c.loss[i], twin, 1e-6)
		}
	}
	// k3 with reference - current = 2 and 1, coefficient 1, advantage 0; d k3/d current = 1 - exp(reference - current).
	v, g := evaluate(t, resolve(t, "{loss: reinforce, kl: {coefficient: 1}}"), []float64{-3, -2},
		Rows{Old: []float64{-3, -2}, Sampling: []float64{-3, -2}, Reference: []float64{-1, -1}, Advantage: []float64{0, 0}, Weight: []float64{1, 1}})
	require.InDelta(t, 4.389056+0.7182818, v, 1e-6)
	require.InDeltaSlice(t, []float64{1 - 7.389056, 1 - 2.7182818}, g, 1e-6)
	// tis_token multiplies the policy term: d = 1, cap 2, reinforce with A = 3 at current = -1.
	v, g = evaluate(t, resolve(t, "{loss: reinforce, correction: {kind: tis_token}}"), []float64{-1},
		Rows{Old: []float64{-1}, Sampling: []float64{-2}, Advantage: []float64{3}, Weight: []float64{0.5}, Correction: []float64{2}})
	require.InDelta(t, 3, v, 1e-6)
	require.InDelta(t, -3, g[0], 1e-6)
}

func TestHandWorkedCriticAndEntropy(t *testing.T) {
	// V_old = 1, clip 0.2, coefficient 0.5, two tokens, so each has the factor 1/2 * 1/2 * 1/2 = 1/8.
	// V = 1.5, R = 2: (0.5)² = 0.25 against (1.2 - 2)² = 0.64: the clipped one, without gradient. 0.64/8 = 0.08.
	// V = 1.1, R = 3: inside the clip, 1.9² = 3.61; gradient 2 * -1.9 / 8 = -0.475. 3.61/8 = 0.45125.
	a := resolve(t, "{advantage: gae, loss: reinforce}")
	b := batch{at: point{[]float64{-1, -1}, []float64{0, 0}, []float64{1.5, 1.1}}, trajectory: []int{0, 0}, rows: Rows{
		Old: []float64{-1, -1}, Sampling: []float64{-1, -1}, Advantage: []float64{0, 0}, Weight: []float64{0.5, 0.5},
		OldValue: []float64{1, 1}, Return: []float64{2, 3}, ValueWeight: 0.5,
	}}
	value, gradient := evaluateAt(t, a, b)
	require.InDelta(t, 0.08+0.45125, value, 1e-12)
	require.InDeltaSlice(t, []float64{0, 0, 0, 0, 0, -0.475}, gradient, 1e-7)
	require.InDelta(t, 0.32, a.Value.Loss(1.5, 1, 2), 1e-12)
	require.InDelta(t, 1.805, a.Value.Loss(1.1, 1, 3), 1e-12)
	// The critic's denominator is its own: a policy weight by sequence does not enter, a masked row does not count.
	b.rows.Weight = []float64{7, 0}
	b.at.values[1] = math.NaN()
	value, gradient = evaluateAt(t, a, b)
	require.InDelta(t, 0.08, value, 1e-12)
	require.Equal(t, make([]float64, 6), gradient)

	// Entropy 2 and 3 with weights 0.5, coefficient 0.1: -0.1 * 0.5 * 5.
	a = resolve(t, "{loss: reinforce, entropy: 0.1}")
	b = batch{at: point{[]float64{-1, -1}, []float64{2, 3}, []float64{0, 0}}, trajectory: []int{0, 0}, rows: Rows{
		Old: []float64{-1, -1}, Sampling: []float64{-1, -1}, Advantage: []float64{0, 0}, Weight: []float64{0.5, 0.5},
	}}
	value, gradient = evaluateAt(t, a, b)
	require.InDelta(t, -0.25, value, 1e-12)
	require.InDeltaSlice(t, []float64{0, 0, -0.05, -0.05, 0, 0}, gradient, 1e-9)
}

// Property 1: what is off the mask touches neither value nor gradient.
func TestMaskedRowsDoNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, block := range allLosses {
		a := resolve(t, block)
		b := randomBatch(rng, a, 6)
		value, gradient := evaluateAt(t, a, b)
		for _, junk := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1e300} {
			wide, at := b, []int{}
			for _, c := range wide.columns() {
				*c = append(slices.Clone(*c), junk)
			}
			wide.rows.Weight[6], wide.trajectory = 0, append(slices.Clone(b.trajectory), 99)
			for i := range 6 { // a masked row before each one and at the end
				at = append(at, 6, i)
			}
			wide = wide.take(append(at, 6))
			v, g := evaluateAt(t, a, wide)
			require.InDelta(t, value, v, 1e-6*math.Abs(value), block)
			for i, x := range g {
				if output, row := i/13, i%13; row%2 == 0 {
					require.Zero(t, x, "%s: junk %v", block, junk)
				} else {
					require.InDelta(t, gradient[6*output+row/2], x, 1e-6, block)
				}
			}
		}
		one := b.take([]int{0})
		for _, c := range one.columns() {
			*c = []float64{math.NaN()}
		}
		one.rows.Weight = []float64{0}
		v, g := evaluateAt(t, a, one)
		require.Zero(t, v)
		require.Equal(t, []float64{0, 0, 0}, g)
	}
}

// Properties 2 and 5: value and gradient equal the twin's, and a twin that is off by one does not pass.
func TestLossesAgainstTheirTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, block := range allLosses {
		a := resolve(t, block)
		for checked := 0; checked < 20; {
			b := randomBatch(rng, a, 8)
			want, smooth := twinGradient(a, b, 0)
			if !smooth || norm(want) == 0 { // every token clipped or dropped
				continue
			}
			checked++
			value, gradient := evaluateAt(t, a, b)
			require.InDelta(t, twin(a, b.at, b, 0), value, 1e-6*(1+math.Abs(value)), block)
			inNorm(t, want, gradient, 1e-6, block)
			shifted, _ := twinGradient(a, b, 1)
			require.Greater(t, distance(shifted, gradient), 1e-2, "%s: the shifted twin passes", block)
		}
	}
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// Property 3: the order of rows and the cut into micro-batches do not change the gradient, also where a trajectory is cut.
func TestLossesIgnoreOrderAndMicroBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, block := range allLosses {
		a := resolve(t, block)
		b := randomBatch(rng, a, 12)
		value, gradient := evaluateAt(t, a, b)
		order := rng.Perm(12)
		sum, merged := 0.0, make([]float64, 36)
		for _, part := range [][]int{order[:5], order[5:6], order[6:]} {
			v, g := evaluateAt(t, a, b.take(part))
			sum += v
			for j, x := range g {
				merged[12*(j/len(part))+part[j%len(part)]] = x
			}
		}
		require.InDelta(t, value, sum, 1e-6*(1+math.Abs(value)))
		inNorm(t, gradient, merged, 1e-6, block)
	}
}

// Property 4: on-policy, ppo_clip's gradient is reinforce's, whatever the clip range. So are those of the other losses that
// are built on a ratio; dppo's where the engine agrees with the trainer.
func TestOnPolicyLossesEqualReinforce(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, block := range []string{
		"loss: ppo_clip", "{loss: ppo_clip, clip_low: 0, clip_high: 0}", "{loss: ppo_clip, clip_high: 0.28, dual_clip: 3}",
		"loss: gspo", "loss: {name: cispo, bound: relative}", "{loss: {name: cispo, bound: absolute}, clip_high: 1}", "loss: dppo", "loss: sapo",
	} {
		a := resolve(t, block)
		b := randomBatch(rng, a, 10)
		b.rows.Old, b.rows.Sampling = b.at.current, b.at.current
		b.complete(a)
		for _, s := range b.rows.Sequence {
			require.Equal(t, 1.0, s)
		}
		_, got := evaluateAt(t, a, b)
		_, want := evaluateAt(t, resolve(t, "loss: reinforce"), b) // sapo: 4/τ · σ'(0) · τ = 1
		inNorm(t, want, got, 1e-7, block)
	}
}

// The sheet's oracle of arpo: under token-mean and without a clip, tree-shared tokens have the same gradient with hard as
// with soft attribution, because each counts once for every leaf.
func TestARPOHardEqualsSoftUnclipped(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	group := Group{
		{Reward: 1, Tokens: 4, Shared: []string{"trunk", "trunk2", "", ""}},
		{Reward: 0, Tokens: 3, Shared: []string{"trunk", "trunk2", "branch"}},
		{Reward: 0.2, Tokens: 4, Shared: []string{"trunk", "trunk2", "branch", ""}},
		{Reward: 3, Tokens: 1, Shared: []string{"trunk"}},
	}
	ratio := map[string]float64{} // a shared token has one current and one old
	var token []string
	var b batch
	for i, r := range group {
		for _, name := range r.Shared {
			if name == "" {
				name = fmt.Sprint(i, len(token))
			}
			if _, seen := ratio[name]; !seen {
				ratio[name] = rng.NormFloat64()
			}
			token = append(token, name)
			b.at.current = append(b.at.current, -4+ratio[name])
			b.rows.Old, b.rows.Sampling, b.trajectory = append(b.rows.Old, -4), append(b.rows.Sampling, -4), append(b.trajectory, i)
		}
	}
	b.at.entropy, b.at.values = make([]float64, len(token)), make([]float64, len(token))
	gradients := func(mode string) map[string]float64 {
		a := resolve(t, "{advantage: {name: arpo, mode: "+mode+"}, loss: {name: dppo, delta: 1}}") // -ρA without a bound
		values, err := a.Advantages([]Group{group})
		require.NoError(t, err)
		b.rows.Advantage = slices.Concat(values[0]...)
		weights, err := a.Aggregation.TokenWeights([]int{4, 3, 4, 1})
		require.NoError(t, err)
		b.rows.Weight = nil
		for _, u := range b.trajectory {
			b.rows.Weight = append(b.rows.Weight, weights[u])
		}
		_, g := evaluateAt(t, a, b)
		out := map[string]float64{}
		for i, name := range token {
			out[name] += g[i]
		}
		return out
	}
	hard, soft := gradients("hard"), gradients("soft")
	require.NotZero(t, hard["branch"])
	for name := range ratio {
		require.InDelta(t, soft[name], hard[name], 1e-7, name)
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
		loss, err := a.Loss.NewLoss()
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
	var panicked *panics.Error
	require.ErrorAs(t, err, &panicked)
	require.ErrorContains(t, err, "algorithms: loss own: its PerToken panicked: ")
	require.NoError(t, r.AddLoss(LossSpec{Name: "unmade", New: func(Settings) (Loss, error) { panic("no weights") }}))
	a, err := Config{Loss: Choice{Name: "unmade"}}.Resolve(r)
	require.NoError(t, err)
	_, err = a.Loss.NewLoss()
	require.ErrorContains(t, err, "algorithms: loss unmade: its New panicked: no weights, at ")
	runtime.GC()
}

func TestObjectiveRefusesRowsThatAreNotParallel(t *testing.T) {
	a := resolve(t, "{}")
	loss, err := a.Loss.NewLoss()
	require.NoError(t, err)
	_, _, err = a.Evaluate(loss, []float64{-1}, Rows{Old: []float64{-1}, Sampling: []float64{-1}, Weight: []float64{1}})
	require.ErrorContains(t, err, "algorithms: rows are not parallel: 1 weights, but 0 of advantage")
}
