//go:build torch

package trainer

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// badLoss returns what a faulty loss might.
type badLoss struct{ kind string }

func (badLoss) Name() string { return "bad" }

func (l badLoss) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	switch l.kind {
	case "infinite": // where the advantage is largest
		return in.Mul(in.Exp(in.Affine(in.Advantage, 1000, -1000)), in.Current), in.Err()
	case "panic":
		panic("index out of range")
	case "gradient": // finite values, but exp's slope at infinity times 0
		zero := in.Affine(in.Advantage, 0, 0)
		x := in.Where(in.GT(in.Advantage, in.Affine(zero, 0, 1)), in.Current, zero)
		return in.Where(in.LT(x, zero), zero, in.Exp(in.Affine(x, -1e6, 0))), in.Err()
	}
	return gotorch.Tensor{}, errors.New("refuses")
}

func TestFailingLossLeavesEverythingAsItWas(t *testing.T) {
	for _, c := range []struct{ kind, want string }{
		{"infinite", "trainer: step 8: optimizer step 1 of 1: trajectory g1/2: token "},
		{"panic", "trainer: step 8: optimizer step 1 of 1: algorithms: loss bad: its PerToken panicked: index out of range, at "},
		{"error", "trainer: step 8: optimizer step 1 of 1: algorithms: loss bad: refuses"},
		{"gradient", "trainer: step 8: optimizer step 1 of 1: trajectory g1/2: "},
	} {
		spec := algorithms.LossSpec{Name: "bad", New: func(algorithms.Settings) (algorithms.Loss, error) { return badLoss{c.kind}, nil }}
		p := policytest.Make(t, 6)
		good := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
		b := someBatch(t, good, 10, 0)
		_, err := good.Step(context.Background(), b)
		require.NoError(t, err)
		for _, g := range b.Groups { // advantages 0.75 and -0.25, but g1/2's is 1.5
			for i, tj := range g.Trajectories {
				tj.Reward = 0
				if i == 2 {
					tj.Reward = 1
				}
			}
		}
		b.Groups[1].Trajectories[2].Reward = 2
		bad := makeTrainer(t, p, resolveBlock(t, "{advantage: dr_grpo, loss: bad}", spec), tinyConfig())
		bad.optimizer, good.optimizer = good.optimizer, bad.optimizer // the one with state
		before, state := policytest.Parameters(t, p), stateOf(t, bad)
		live := cgo.LiveHandles()
		_, err = bad.Step(context.Background(), b)
		require.ErrorContains(t, err, c.want)
		require.LessOrEqual(t, cgo.LiveHandles(), live)
		require.Equal(t, before, policytest.Parameters(t, p))
		require.Equal(t, state, stateOf(t, bad))
		for name, g := range gradientsNow(t, p) {
			require.Equal(t, make([]float32, len(g)), g, name)
		}
	}
}

func TestBadBatches(t *testing.T) {
	p := policytest.Make(t, 7)
	tr := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	for _, c := range []struct {
		want  string
		spoil func(b *Batch)
	}{
		{"trainer: step 8: trajectory g1/3: its reward is NaN; a reward must be finite", func(b *Batch) { b.Groups[1].Trajectories[3].Reward = math.NaN() }},
		{"trainer: step 8: trajectory g0/1: token 13 has the sampling logprob NaN", func(b *Batch) {
			b.Groups[0].Trajectories[1].Samples[0].SamplingLogprobs[13] = float32(math.NaN())
		}},
		{"trainer: step 8: trajectory g0/1: token 13 has the sampling logprob -Inf", func(b *Batch) {
			b.Groups[0].Trajectories[1].Samples[0].SamplingLogprobs[13] = float32(math.Inf(-1))
		}},
		{"trainer: step 8: trajectory g2/0: the estimator gives NaN for response token 0; its rewards are out of range", func(b *Batch) {
			for i, tj := range b.Groups[2].Trajectories {
				tj.Reward = math.MaxFloat64 * float64(1-2*min(i, 1))
			}
		}},
		{"trainer: step 8: trajectory g0/1: trajectory: token 0 is marked as sampled", func(b *Batch) { b.Groups[0].Trajectories[1].Samples[0].ResponseMask[0] = true }},
		{"trainer: step 8: trainer: pack: trajectory g2/0 has 113 tokens, the model takes 64; lower rollout.max_tokens", func(b *Batch) {
			s := &trajectory.Sample{}
			s.AppendObservation(make([]int32, 100))
			n := 13
			require.NoError(t, s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n)))
			b.Groups[2].Trajectories[0].Samples[0] = s
		}},
		{"cgo: batch: Tokens[", func(b *Batch) { b.Groups[2].Trajectories[0].Samples[0].TokenIDs[2] = tinyVocab }},
	} {
		b := someBatch(t, tr, 11, 0)
		c.spoil(&b)
		before := policytest.Parameters(t, p)
		_, err := tr.Step(context.Background(), b)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, strings.Contains(c.want, "NaN") || strings.Contains(c.want, "Inf"), IsNonFinite(err), c.want)
		require.Equal(t, before, policytest.Parameters(t, p))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := tr.Step(ctx, someBatch(t, tr, 11, 0))
	require.ErrorIs(t, err, context.Canceled)

	for _, spoil := range []func(c *Config){
		func(c *Config) { c.Temperature = 0 },
		func(c *Config) { c.MicroBatchTokens = 0 },
		func(c *Config) { c.ClipGrad = -1 },
		func(c *Config) { c.MaxLength = -1 },
		func(c *Config) { c.Schedule.LearningRate = math.NaN() },
	} {
		c := tinyConfig()
		spoil(&c)
		_, err := NewTrainer(p.Model, tr.worker, tr.algorithm, c)
		require.ErrorContains(t, err, "trainer: ")
	}
	_, err = NewTrainer(p.Model, tr.worker, resolveBlock(t, "kl: {coefficient: 0.1}"), tinyConfig())
	require.EqualError(t, err, "trainer: kl.coefficient is 0.1, which needs a reference policy; give one or set it to 0")
	_, err = NewTrainer(p.Model, tr.worker, resolveBlock(t, "advantage: gae"), tinyConfig())
	require.EqualError(t, err, "trainer: advantage gae has a critic, but the model has no value head; add one before the trainer is made")
}

func TestNonFiniteWeightsAreNamed(t *testing.T) {
	p := policytest.Make(t, 8)
	tr := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	b := someBatch(t, tr, 12, 0)
	info := p.Model.Parameters()[1]
	values, err := p.Model.Parameter(info.Name)
	require.NoError(t, err)
	values[0] = float32(math.NaN())
	require.NoError(t, setParameter(p, info, values))
	p.Model.Changed()
	_, err = tr.Step(context.Background(), b)
	require.ErrorContains(t, err, "the trainer's logprob is NaN")
	require.ErrorContains(t, err, "trainer: step 8: optimizer step 1 of 1: trajectory g")
}
