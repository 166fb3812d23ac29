//go:build torch

package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

const tinyVocab = 15 // three special tokens and twelve characters

func resolveBlock(t testing.TB, block string, extra ...algorithms.LossSpec) *algorithms.Algorithm {
	t.Helper()
	registry := algorithms.NewRegistry()
	for _, s := range extra {
		require.NoError(t, registry.AddLoss(s))
	}
	var v any
	require.NoError(t, yaml.Unmarshal([]byte(block), &v))
	data, err := json.Marshal(v) // as package job reads the block of a job file
	require.NoError(t, err)
	c, err := algorithms.ParseJSON(data)
	require.NoError(t, err)
	a, err := c.Resolve(registry)
	require.NoError(t, err)
	return a
}

func tinyConfig() Config {
	return Config{Schedule: Schedule{LearningRate: 1e-2}, ClipGrad: 1, Temperature: 0.8, MicroBatchTokens: 60, minShared: 2, MaxLength: 64}
}

func makeTrainer(t testing.TB, p *policy.Policy, a *algorithms.Algorithm, c Config) *Trainer {
	t.Helper()
	w := cgo.NewWorker()
	tr, err := NewTrainer(p.Model, w, a, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tr.Close()); require.NoError(t, w.Close()) })
	return tr
}

// someBatch makes groups of trajectories of two turns with an observation between them. Sampling logprobs are the
// trainer's own, moved by noise.
func someBatch(t testing.TB, tr *Trainer, seed uint64, noise float64) Batch {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 99))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = 3 + rng.Int32N(tinyVocab-3)
		}
		return ids
	}
	system := random(8)
	b := Batch{Step: 7, Version: 3}
	var samples []*trajectory.Sample
	for g := range 3 {
		group := &trajectory.Group{}
		prompt := slices.Concat(system, random(5))
		for i := range 4 {
			s := &trajectory.Sample{}
			s.AppendObservation(prompt)
			for turn := range 2 {
				n := 1 + rng.IntN(5)
				require.NoError(t, s.AppendResponse(random(n), make([]float32, n), slices.Repeat([]int32{int32(3 - turn*g)}, n)))
				s.AppendObservation(random(rng.IntN(4)))
			}
			samples = append(samples, s)
			group.Trajectories = append(group.Trajectories, &trajectory.Trajectory{ID: fmt.Sprintf("g%d/%d", g, i), Group: g, Index: i, Samples: []*trajectory.Sample{s}, Reward: float64(rng.IntN(4)), StopReason: trajectory.StopAnswer})
		}
		group.Trajectories[0].Reward, group.Trajectories[1].Reward = 0, 3 // a group with variance
		b.Groups = append(b.Groups, group)
	}
	scores, err := tr.Logprobs(context.Background(), samples, tr.config.Temperature)
	require.NoError(t, err)
	for i, s := range samples {
		for j, on := range s.ResponseMask {
			if on {
				s.SamplingLogprobs[j] = float32(math.Min(0, float64(scores[i].Logprobs[j])+noise*rng.NormFloat64()))
			}
		}
	}
	return b
}

// gradients runs the step's own path up to the optimizer and returns the gradient of every parameter.
func gradients(t testing.TB, tr *Trainer, b Batch) map[string][]float32 {
	t.Helper()
	p, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	r := newStepRun(tr, p, 0)
	ctx := context.Background()
	require.NoError(t, r.early(ctx))
	require.NoError(t, p.estimate(tr.algorithm))
	var batches []miniBatch
	for _, units := range p.miniBatches(1) {
		mb, err := r.packing.miniBatch(units, tr.algorithm)
		require.NoError(t, err)
		batches = append(batches, mb)
	}
	require.NoError(t, r.before(ctx, batches))
	out := map[string][]float32{}
	require.NoError(t, tr.worker.Do(ctx, func() error {
		for _, mb := range batches {
			if err := r.rows.sequences(ctx, tr.model, cgo.Neighbours{}, mb); err != nil {
				return err
			}
			for i := range mb.train {
				if _, err := r.backward(&mb.train[i], mb, false); err != nil {
					return err
				}
			}
		}
		for _, info := range tr.model.Trained() {
			g, err := tr.model.Gradient(info.Name)
			if err != nil {
				return err
			}
			out[info.Name] = g
		}
		return tr.optimizer.ZeroGrad()
	}))
	return out
}

func sameGradients(t testing.TB, want, got map[string][]float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	require.LessOrEqual(t, worstDistance(want, got), tolerance)
}

// worstDistance is the largest distance of a tensor's gradients, in norms of the first.
func worstDistance(want, got map[string][]float32) float64 {
	worst := 0.0
	for name := range want {
		worst = max(worst, gradientDistance(want[name], got[name]))
	}
	return worst
}

func gradientDistance(want, got []float32) float64 {
	norm, diff := 0.0, 0.0
	for i := range want {
		norm += float64(want[i]) * float64(want[i])
		diff += float64(want[i]-got[i]) * float64(want[i]-got[i])
	}
	return math.Sqrt(diff / norm)
}

func TestGradientIgnoresPackingAndOrder(t *testing.T) {
	for _, block := range []string{
		"{}", "{aggregation: seq-mean-token-mean, advantage: rloo}", "{loss: reinforce, aggregation: seq-mean-token-sum, entropy: 0.1}", "{aggregation: seq-mean-token-sum-norm, max_tokens: 20, correction: {kind: tis_token, cap: 1.1}}",
		// Quantities of whole trajectories, which splitTurns cuts over micro-batches.
		"{correction: {kind: tis_sequence, cap: 1.2}}", "{correction: {kind: seq_mask, low: 0.95, high: 1.05}}", "{loss: gspo, clip_low: 0.5, clip_high: 0.5, correction: {kind: bypass}}",
		"{loss: gspo, epochs: 2}", "{advantage: {name: gae, gamma: 0.9}, loss: sapo, kl: {coefficient: 0.3}}", "{advantage: {name: reinforce_pp, gamma: 0.9}, kl: {coefficient: 0.3, in: reward, estimator: k1}}",
	} {
		p := policytest.Make(t, 1)
		plain := tinyConfig()
		if a := resolveBlock(t, block); a.HasCritic() {
			addCritic(t, p)
		}
		plain.Reference = FrozenModel{policytest.Make(t, 77).Model}
		plain.MicroBatchTokens, plain.minShared = 1, 1000 // every sample alone, nothing shared
		reference := makeTrainer(t, p, resolveBlock(t, block), plain)
		b := someBatch(t, reference, 5, 0.1)
		want := gradients(t, reference, b)
		worst := 0.0
		for _, c := range []struct{ micro, shared int }{{40, 1}, {60, 2}, {100, 16}, {1000, 1}, {1000, 3}} {
			config := plain
			config.MicroBatchTokens, config.minShared = c.micro, c.shared
			tr := makeTrainer(t, p, reference.algorithm, config)
			worst = max(worst, worstDistance(want, gradients(t, tr, b)))
			config.Checkpoint = cgo.AllLayers
			worst = max(worst, worstDistance(want, gradients(t, makeTrainer(t, p, reference.algorithm, config), b)))

			turned := Batch{}
			for _, g := range slices.Backward(b.Groups) {
				group := &trajectory.Group{Trajectories: slices.Clone(g.Trajectories)}
				slices.Reverse(group.Trajectories)
				turned.Groups = append(turned.Groups, group)
			}
			worst = max(worst, worstDistance(want, gradients(t, tr, turned)))
			worst = max(worst, worstDistance(want, gradients(t, tr, splitTurns(t, b))))
		}
		t.Logf("%s: %.2g", block, worst)
		tolerance := 2e-6 // float32 sums in another order: up to 1.1e-6 on Intel with MKL
		if a := reference.algorithm; a.Correction.Kind == algorithms.CorrectionTISSequence {
			tolerance = 3e-6 // its weights are the exponential of a sum of fp32 numbers over the trajectory
		}
		require.LessOrEqual(t, worst, tolerance, block)
		// The comparison can fail: one reward more changes the gradient.
		b.Groups[0].Trajectories[0].Reward++
		require.Greater(t, gradientDistance(want["model.embed_tokens.weight"], gradients(t, reference, b)["model.embed_tokens.weight"]), 1e-3)
	}
}

// splitTurns gives every trajectory one sample a turn, each with the history as observation.
func splitTurns(t testing.TB, b Batch) Batch {
	t.Helper()
	out := Batch{}
	for _, g := range b.Groups {
		group := &trajectory.Group{}
		for _, tj := range g.Trajectories {
			c := *tj
			c.Samples = nil
			s := tj.Samples[0]
			for i := 0; i < s.Len(); i++ {
				if !s.ResponseMask[i] || i > 0 && s.ResponseMask[i-1] {
					continue
				}
				end := i
				for end < s.Len() && s.ResponseMask[end] {
					end++
				}
				part := &trajectory.Sample{}
				part.AppendObservation(s.TokenIDs[:i])
				require.NoError(t, part.AppendResponse(s.TokenIDs[i:end], s.SamplingLogprobs[i:end], s.PolicyVersion[i:end]))
				c.Samples = append(c.Samples, part)
			}
			group.Trajectories = append(group.Trajectories, &c)
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

// TestGradientAgainstPlainTwin holds the whole path against a twin that knows neither packing nor the loss code: one
// forward per sample, the loss's slope -A·w in plain Go (ratio 1), and a chain rule by finite differences along the
// gradient's own direction. shift moves the twin's targets: 1 must fail.
func TestGradientAgainstPlainTwin(t *testing.T) {
	p := policytest.Make(t, 2)
	tr := makeTrainer(t, p, resolveBlock(t, "{advantage: dr_grpo}"), tinyConfig())
	b := someBatch(t, tr, 6, 0)
	got := gradients(t, tr, b)
	norm := 0.0
	for _, g := range got {
		for _, x := range g {
			norm += float64(x) * float64(x)
		}
	}
	objective := func(shift int) float64 { // Σ -A·logprob / N: its gradient is ppo_clip's at ratio 1
		total, n := 0.0, 0
		for _, g := range b.Groups {
			mean := 0.0
			for _, tj := range g.Trajectories {
				mean += tj.Reward / float64(len(g.Trajectories))
			}
			for _, tj := range g.Trajectories {
				s := tj.Samples[0]
				batch := cgo.Batch{Tokens: s.TokenIDs, SegmentStart: []int32{0}, SegmentLength: []int32{int32(s.Len())}, SegmentParent: []int32{-1}, Temperature: tr.config.Temperature}
				for i := range s.TokenIDs {
					batch.Positions = append(batch.Positions, int32(i))
					if s.ResponseMask[i] {
						batch.RowToken = append(batch.RowToken, int32(i-1+shift))
						batch.RowTarget = append(batch.RowTarget, s.TokenIDs[i])
					}
				}
				logprobs, _, err := p.Model.Logprobs(&batch)
				require.NoError(t, err)
				for _, lp := range logprobs {
					total -= (tj.Reward - mean) * float64(lp)
					n++
				}
			}
		}
		return total / float64(n)
	}
	slope := func(shift int) float64 { // directional derivative along the gradient: |g|² if they agree
		const h = 4e-3
		move := func(step float64) {
			for _, info := range p.Model.Parameters() {
				values, err := p.Model.Parameter(info.Name)
				require.NoError(t, err)
				for i := range values {
					values[i] += float32(step * float64(got[info.Name][i]) / math.Sqrt(norm))
				}
				require.NoError(t, setParameter(p, info, values))
			}
			p.Model.Changed()
		}
		move(h)
		up := objective(shift)
		move(-2 * h)
		down := objective(shift)
		move(h)
		return (up - down) / (2 * h)
	}
	require.InEpsilon(t, math.Sqrt(norm), slope(0), 2e-3)
	require.Greater(t, math.Abs(slope(1)/math.Sqrt(norm)-1), 0.1, "a twin that is off by one passes")
}

// addCritic gives the model a value head that is not zero.
func addCritic(t testing.TB, p *policy.Policy) {
	t.Helper()
	require.NoError(t, p.Model.AddValueHead())
	weight := make32(p.Config.HiddenSize, func(i int) float32 { return float32(math.Sin(float64(3*i))) / 4 })
	require.NoError(t, setParameter(p, cgo.ParameterInfo{Name: valueHead, Shape: []int64{1, int64(len(weight))}}, weight))
	require.NoError(t, setParameter(p, cgo.ParameterInfo{Name: "value_head.bias", Shape: []int64{1}}, []float32{0.25}))
	p.Model.Changed()
}

func setParameter(p *policy.Policy, info cgo.ParameterInfo, values []float32) error {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		bits := math.Float32bits(v)
		data = append(data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	return p.Model.SetParameter(info.Name, cgo.F32, data, info.Shape)
}

// What a step records as entropy of each token is that of the weights before it, and its mean is the metric.
func TestEntropyOfTokensIsThatBeforeTheStep(t *testing.T) {
	tr := makeTrainer(t, policytest.Make(t, 3), resolveBlock(t, "{advantage: dr_grpo}"), tinyConfig())
	b := someBatch(t, tr, 7, 0)
	var samples []*trajectory.Sample
	for _, g := range b.Groups {
		for _, tj := range g.Trajectories {
			samples = append(samples, tj.Samples[0])
		}
	}
	before, err := tr.Logprobs(context.Background(), samples, tinyConfig().Temperature)
	require.NoError(t, err)
	m, err := tr.Step(context.Background(), b)
	require.NoError(t, err)
	after, err := tr.Logprobs(context.Background(), samples, tinyConfig().Temperature)
	require.NoError(t, err)
	require.Len(t, m.Samples, len(samples))
	sum, tokens, moved := 0.0, 0, 0.0
	for i, u := range m.Samples {
		require.Len(t, u.Entropy, len(u.OldLogprobs))
		require.InDeltaSlice(t, before[i].Entropy, u.Entropy, 1e-5, u.Trajectory)
		for k, on := range samples[i].ResponseMask {
			if on {
				sum, tokens, moved = sum+float64(u.Entropy[k]), tokens+1, max(moved, math.Abs(float64(after[i].Entropy[k]-u.Entropy[k])))
			} else {
				require.Zero(t, u.Entropy[k])
			}
		}
	}
	require.InDelta(t, m.Entropy, sum/float64(tokens), 1e-9)
	require.Greater(t, moved, 1e-3, "the step moved the entropies, so that those after it are told apart")
}

func TestStepMetrics(t *testing.T) {
	p := policytest.Make(t, 3)
	tr := makeTrainer(t, p, resolveBlock(t, "{advantage: dr_grpo}"), tinyConfig())
	b := someBatch(t, tr, 7, 0)
	for _, tj := range b.Groups[1].Trajectories {
		tj.Reward = 2 // no variance
	}
	failedOne := *b.Groups[0].Trajectories[3]
	failedOne.StopReason, failedOne.Err, failedOne.Reward = trajectory.StopError, "tool: gone", math.NaN()
	b.Groups[0].Trajectories[3] = &failedOne
	empty := &trajectory.Sample{}
	empty.AppendObservation([]int32{3, 4})
	b.Groups[2].Trajectories = append(b.Groups[2].Trajectories, &trajectory.Trajectory{ID: "empty", Samples: []*trajectory.Sample{empty}, Reward: 100, StopReason: trajectory.StopMaxTokens})
	tokens := 0
	for g, group := range b.Groups {
		for i, tj := range group.Trajectories {
			if g != 0 || i != 3 {
				tokens += tj.Samples[0].ResponseTokens()
			}
		}
	}
	before := policytest.Parameters(t, p)
	live := cgo.LiveHandles()
	m, err := tr.Step(context.Background(), b)
	require.NoError(t, err)
	require.LessOrEqual(t, cgo.LiveHandles(), live)
	require.NotEqual(t, before, policytest.Parameters(t, p))
	require.Equal(t, 11, m.Trajectories)
	require.Equal(t, 1, m.Failed)
	require.Equal(t, 1, m.Empty)
	require.Equal(t, 1, m.FlatGroups)
	require.Equal(t, tokens, m.Tokens)
	require.Equal(t, 1, m.OptimizerSteps)
	require.Equal(t, int64(1), tr.Steps())
	require.Equal(t, 0.01, m.LearningRate)
	require.Equal(t, 2, m.StalenessMax) // group 2's second turns are of version 3 - 2
	require.InDelta(t, (0.0*3+1*4+2*4)/11, m.StalenessMean, 1e-12)
	require.Zero(t, m.ClipFraction)
	require.Less(t, m.MismatchMax, 1e-5)
	require.InDelta(t, 1, m.ESS, 1e-6)
	require.Positive(t, m.GradNorm)
	require.InDelta(t, math.Log(tinyVocab), m.Entropy, 0.5) // nearly uniform at the start
	require.Less(t, m.PackedTokens, m.UnpackedTokens)

	// All flat: nothing moves, nothing is counted as a step.
	for _, g := range b.Groups {
		for _, tj := range g.Trajectories {
			tj.Reward = 1
		}
	}
	before = policytest.Parameters(t, p)
	m, err = tr.Step(context.Background(), b)
	require.NoError(t, err)
	require.Zero(t, m.OptimizerSteps)
	require.Positive(t, m.Entropy)
	require.Equal(t, 3, m.FlatGroups)
	require.Equal(t, before, policytest.Parameters(t, p))
	m, err = tr.Step(context.Background(), Batch{})
	require.NoError(t, err)
	require.Equal(t, Metrics{}, m)
}

// The rate falls with the steps of the run, so that it has fallen at the run's end: a step without anything to learn takes
// none of the optimizer's, and takes its place on the schedule all the same.
func TestTheRateFollowsTheRun(t *testing.T) {
	config := tinyConfig()
	config.Schedule = Schedule{LearningRate: 1e-3, Kind: "linear", Total: 4 * 2 * 2}
	tr := makeTrainer(t, policytest.Make(t, 3), resolveBlock(t, "{epochs: 2, mini_batches: 2}"), config)
	rates := make([]float64, 4)
	for step := range rates {
		b := someBatch(t, tr, 11, 0)
		b.Step = step
		for g, group := range b.Groups {
			for i, tj := range group.Trajectories {
				switch {
				case step == 1 || step == 2: // all equal
					tj.Reward = 1
				case step == 3 && g > 0: // the first mini-batch alone moves
					tj.Reward = 1
				default:
					tj.Reward = float64(i)
				}
			}
		}
		m, err := tr.Step(context.Background(), b)
		require.NoError(t, err)
		require.Equal(t, []int{4, 0, 0, 2}[step], m.OptimizerSteps, "step %d", step)
		rates[step] = m.LearningRate
	}
	// Of places 0 to 15, step 0's last update is at 3; step 3's at 14, the first mini-batch of its second epoch.
	require.InDeltaSlice(t, []float64{13e-3 / 16, 0, 0, 2e-3 / 16}, rates, 1e-12)
	require.Equal(t, int64(6), tr.Steps())
}

func TestLogprobsOf(t *testing.T) {
	p := policytest.Make(t, 3)
	tr := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	ids := []int32{1, 5, 3, 9, 4, 2}
	s := sampleOf(ids, "011111")
	want, err := tr.Logprobs(context.Background(), []*trajectory.Sample{s}, 0.5)
	require.NoError(t, err)
	logprobs, entropy, err := LogprobsOf(p.Model, ids, 0.5)
	require.NoError(t, err)
	require.InDeltaSlice(t, want[0].Logprobs[1:], logprobs, 1e-6)
	require.InDeltaSlice(t, want[0].Entropy[1:], entropy, 1e-6)
	_, _, err = LogprobsOf(p.Model, ids[:1], 1)
	require.EqualError(t, err, "trainer: logprobs: 1 ids; a logprob needs a token and one before it")
	_, _, err = LogprobsOf(p.Model, []int32{1, tinyVocab}, 1)
	require.ErrorIs(t, err, cgo.ErrInput)
}

func TestSeveralUpdatesABatch(t *testing.T) {
	p := policytest.Make(t, 5)
	tr := makeTrainer(t, p, resolveBlock(t, "{epochs: 3, mini_batches: 2}"), tinyConfig())
	b := someBatch(t, tr, 9, 0)
	barriers := 0
	tr.config.Barrier = func(ctx context.Context, write func(context.Context) error) error { barriers++; return write(ctx) }
	m, err := tr.Step(context.Background(), b)
	require.NoError(t, err)
	require.Equal(t, 6, m.OptimizerSteps)
	require.Equal(t, 6, barriers)
	require.Positive(t, m.ClipFraction, "a learning rate of 1e-2 moves ratios out of the clip range")
	require.Less(t, m.MismatchMax, 1e-5, "old is of before the first update")
}

func TestMiniBatches(t *testing.T) {
	p := &plan{units: []unit{{group: 0}, {group: 0}, {group: 1}, {group: 1}, {group: 2}}}
	require.Equal(t, [][]int{{0, 1, 2, 3, 4}}, p.miniBatches(1))
	require.Equal(t, [][]int{{0, 1, 2, 3}, {4}}, p.miniBatches(2))
	require.Equal(t, [][]int{{0, 1}, {2, 3}, {4}}, p.miniBatches(3))
	require.Equal(t, [][]int{{0, 1}, {2}, {3}, {4}}, p.miniBatches(4)) // more than groups: cut between trajectories
	require.Equal(t, [][]int{{0}, {1}, {2}, {3}, {4}}, p.miniBatches(9))
}

func gradientsNow(t testing.TB, p *policy.Policy) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for _, info := range p.Model.Parameters() {
		g, err := p.Model.Gradient(info.Name)
		require.NoError(t, err)
		out[info.Name] = g
	}
	return out
}

func stateOf(t testing.TB, tr *Trainer) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{"steps": {float32(tr.Steps())}}
	for _, info := range tr.model.Parameters() {
		for _, m := range moments {
			values, err := tr.optimizer.State(info.Name, m.moment)
			require.NoError(t, err)
			out[info.Name+m.suffix] = values
		}
	}
	return out
}

func make32(n int, f func(i int) float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// TestBanditLearns trains single tokens: reward 1 for the token of the prompt, sampled from the trainer's own numbers.
func TestBanditLearns(t *testing.T) {
	learn := func(shuffled bool) float64 {
		p := policytest.Make(t, 11)
		tr := makeTrainer(t, p, resolveBlock(t, "{advantage: dr_grpo}"), Config{Schedule: Schedule{LearningRate: 1e-2}, ClipGrad: 1, Temperature: 1, MicroBatchTokens: 1000})
		rng := rand.New(rand.NewPCG(1, 1))
		last := 0.0
		for range 40 {
			b := Batch{}
			last = 0
			for g := range 4 {
				prompt := int32(3 + g)
				var all []*trajectory.Sample
				for id := range int32(tinyVocab) {
					s := &trajectory.Sample{}
					s.AppendObservation([]int32{1, prompt})
					require.NoError(t, s.AppendResponse([]int32{id}, []float32{0}, []int32{0}))
					all = append(all, s)
				}
				scores, err := tr.Logprobs(context.Background(), all, 1)
				require.NoError(t, err)
				group := &trajectory.Group{}
				for range 8 {
					id, x := 0, rng.Float64()
					for ; id < tinyVocab-1 && x > math.Exp(float64(scores[id].Logprobs[2])); id++ {
						x -= math.Exp(float64(scores[id].Logprobs[2]))
					}
					s := &trajectory.Sample{}
					s.AppendObservation([]int32{1, prompt})
					require.NoError(t, s.AppendResponse([]int32{int32(id)}, []float32{min(0, scores[id].Logprobs[2])}, []int32{0}))
					tj := &trajectory.Trajectory{Samples: []*trajectory.Sample{s}, StopReason: trajectory.StopAnswer}
					if int32(id) == prompt {
						last += 1.0 / 32
						tj.Reward = 1
					}
					if shuffled {
						tj.Reward = float64(rng.IntN(2))
					}
					group.Trajectories = append(group.Trajectories, tj)
				}
				b.Groups = append(b.Groups, group)
			}
			_, err := tr.Step(context.Background(), b)
			require.NoError(t, err)
		}
		return last
	}
	require.GreaterOrEqual(t, learn(false), 0.9)
	require.Less(t, learn(true), 0.5) // rewards that do not depend on the answer teach nothing
}
