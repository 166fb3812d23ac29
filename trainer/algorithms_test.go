//go:build torch

package trainer

import (
	"context"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/policy/policytest"
	"github.com/agentfly/agentfly/trajectory"
)

// withTurns records the two turns of every trajectory of someBatch.
func withTurns(b Batch) Batch {
	for _, g := range b.Groups {
		for _, tj := range g.Trajectories {
			s := tj.Samples[0]
			tj.Turns = nil
			for i := 0; i < s.Len(); i++ {
				if !s.ResponseMask[i] || i > 0 && s.ResponseMask[i-1] && len(tj.Turns) > 0 && tj.Turns[len(tj.Turns)-1].CompletionEnd > i {
					continue
				}
				end := i
				for end < s.Len() && s.ResponseMask[end] {
					end++
				}
				tj.Turns = append(tj.Turns, trajectory.Turn{CompletionStart: i, CompletionEnd: end})
			}
		}
	}
	return b
}

func TestTurnsBecomeRecords(t *testing.T) {
	// Two samples: prompt 1 2, turn 7 8, observation 3, turn 9 | a rewritten history 1 4, turn 7.
	one, two := &trajectory.Sample{}, &trajectory.Sample{}
	one.AppendObservation([]int32{1, 2})
	require.NoError(t, one.AppendResponse([]int32{7, 8}, []float32{-1, -1}, []int32{0, 0}))
	one.AppendObservation([]int32{3})
	require.NoError(t, one.AppendResponse([]int32{9}, []float32{-1}, []int32{0}))
	two.AppendObservation([]int32{1, 4})
	require.NoError(t, two.AppendResponse([]int32{7}, []float32{-1}, []int32{0}))
	paid := 0.5
	tj := &trajectory.Trajectory{ID: "a", Samples: []*trajectory.Sample{one, two}, Turns: []trajectory.Turn{
		{CompletionStart: 2, CompletionEnd: 4, Shared: "root"}, {CompletionStart: 5, CompletionEnd: 6, Reward: &paid}, {Sample: 1, CompletionStart: 2, CompletionEnd: 3, Anchor: "kitchen"},
	}}
	b := Batch{Groups: []*trajectory.Group{{Trajectories: []*trajectory.Trajectory{tj}}}}
	p, err := newPlan(resolveBlock(t, "advantage: gigpo"), b)
	require.NoError(t, err)
	r := p.records[0][0]
	require.Equal(t, []int{0, 0, 1, 2}, r.Turn)
	require.Equal(t, []*float64{nil, &paid, nil}, r.TurnRewards)
	require.Equal(t, []string{anchor(trajectory.Prefix{IDs: []int32{1, 2}}, 0), anchor(trajectory.Prefix{IDs: []int32{3}}, 0), "kitchen"}, r.Anchors)
	require.NotEqual(t, r.Anchors[0], r.Anchors[1])
	require.Equal(t, []string{"root", "root", "", ""}, r.Shared)

	tj.Turns = tj.Turns[:2]
	_, err = newPlan(resolveBlock(t, "advantage: turn"), b)
	require.EqualError(t, err, "trainer: step 1: trajectory a: response token 2 of sample 1 belongs to no turn")
	tj.Turns[1].CompletionEnd = 60
	_, err = newPlan(resolveBlock(t, "advantage: turn"), b)
	require.EqualError(t, err, "trainer: step 1: trajectory a: turn 1 has tokens 5 to 60 of a sample with 6")
	_, err = newPlan(resolveBlock(t, "{}"), b) // which reads no turn
	require.NoError(t, err)
	tj.Turns = nil
	p, err = newPlan(resolveBlock(t, "advantage: gigpo"), b)
	require.NoError(t, err)
	require.Nil(t, p.records[0][0].Turn)
	require.Len(t, p.records[0][0].Anchors, 1)
}

func TestGreedyRollouts(t *testing.T) {
	tr := makeTrainer(t, policytest.Make(t, 3), resolveBlock(t, "advantage: remax"), tinyConfig())
	b := someBatch(t, tr, 7, 0)
	_, err := tr.Step(context.Background(), b)
	require.EqualError(t, err, "trainer: step 8: group 0 has no greedy rollout, but advantage remax needs its reward")
	for _, g := range b.Groups {
		g.Greedy = &trajectory.Trajectory{Reward: 1, StopReason: trajectory.StopAnswer}
	}
	b.Groups[1].Greedy = &trajectory.Trajectory{Err: "tool: gone", StopReason: trajectory.StopError}
	m, err := tr.Step(context.Background(), b)
	require.NoError(t, err)
	require.Equal(t, 4, m.Failed) // the group without a baseline
	require.Equal(t, 8, m.Trajectories)
	for _, u := range m.Samples {
		tj := find(b, u.Trajectory)
		for i, on := range tj.Samples[u.Sample].ResponseMask {
			if on {
				require.Equal(t, float32(tj.Reward-1), u.Advantages[i])
			}
		}
	}
}

func find(b Batch, id string) *trajectory.Trajectory {
	for _, g := range b.Groups {
		for _, tj := range g.Trajectories {
			if tj.ID == id {
				return tj
			}
		}
	}
	return nil
}

// Every estimator and every loss takes steps, of one and of several updates a batch, with everything recorded.
func TestEveryAlgorithmSteps(t *testing.T) {
	losses := []string{"ppo_clip", "gspo", "{name: cispo, bound: relative}", "reinforce", "sapo", "dppo"}
	estimators := []string{"grpo", "dr_grpo", "rloo", "maxrl", "opo", "remax", "reinforce_pp", "{name: reinforce_pp, group_baseline: true}", "gae", "gigpo", "turn", "{name: turn, mode: first_occurrence}", "{name: turn, mode: discounted}", "arpo", "{name: tree, local: 1, shared: sqrt}"}
	corrections := []string{"none", "tis_token", "tis_sequence", "icepop", "seq_mask", "bypass"}
	for i, estimator := range estimators {
		block := "{advantage: " + estimator + ", loss: " + losses[i%len(losses)] + ", correction: {kind: " + corrections[i%5] + "}, kl: {coefficient: 0.1, estimator: k3, in: " + []string{"loss", "reward"}[i%2] + "}"
		for _, updates := range []string{"}", ", epochs: 2, mini_batches: 2}"} {
			a := resolveBlock(t, block+updates)
			p := policytest.Make(t, 3)
			if a.HasCritic() {
				addCritic(t, p)
			}
			c := tinyConfig()
			c.Reference = FrozenModel{policytest.Make(t, 4).Model}
			tr := makeTrainer(t, p, a, c)
			b := withTurns(someBatch(t, tr, 7, 0.05))
			for _, g := range b.Groups {
				g.Greedy = &trajectory.Trajectory{Reward: 1}
			}
			live := cgo.LiveHandles()
			m, err := tr.Step(context.Background(), b)
			require.NoError(t, err, block)
			require.LessOrEqual(t, cgo.LiveHandles(), live, block)
			require.Equal(t, a.Epochs*a.MiniBatches, m.OptimizerSteps)
			require.Positive(t, m.GradNorm, block)
			require.Positive(t, m.KL, block)
			require.Equal(t, a.HasCritic(), m.ValueLoss > 0)
			for _, u := range m.Samples {
				require.NotNil(t, u.ReferenceLogprobs)
				require.Equal(t, a.HasCritic(), u.Values != nil)
			}
		}
	}
}

func TestKLAgainstTheReference(t *testing.T) {
	p := policytest.Make(t, 1)
	plain := makeTrainer(t, p, resolveBlock(t, "{}"), tinyConfig())
	b := someBatch(t, plain, 5, 0)
	want := gradients(t, plain, b)
	// Where the reference is the policy, k2 and k3 are 0 with gradient 0.
	c := tinyConfig()
	for _, kind := range []string{"k2", "k3"} {
		a := resolveBlock(t, "kl: {coefficient: 5, estimator: "+kind+"}")
		c.Reference = FrozenModel{policytest.Make(t, 1).Model}
		sameGradients(t, want, gradients(t, makeTrainer(t, p, a, c), b), 1e-5)
		c.Reference = FrozenModel{policytest.Make(t, 2).Model}
		require.Greater(t, gradientDistance(want["model.embed_tokens.weight"], gradients(t, makeTrainer(t, p, a, c), b)["model.embed_tokens.weight"]), 1e-2)
	}
	// In the reward: r - coefficient * Σ_t k1, and nothing in the loss.
	a := resolveBlock(t, "{advantage: {name: grpo, normalize_std: false}, kl: {coefficient: 0.5, estimator: k1, in: reward}}")
	tr := makeTrainer(t, p, a, c)
	m, err := tr.Step(context.Background(), b)
	require.NoError(t, err)
	sums := map[string]float64{}
	kl := 0.0
	for _, u := range m.Samples {
		for i, on := range find(b, u.Trajectory).Samples[0].ResponseMask {
			if on {
				sums[u.Trajectory] += float64(u.OldLogprobs[i]) - float64(u.ReferenceLogprobs[i])
				kl += float64(u.OldLogprobs[i]) - float64(u.ReferenceLogprobs[i])
			}
		}
	}
	require.InDelta(t, kl/float64(m.Tokens), m.KL, 1e-6)
	for _, g := range b.Groups {
		mean := 0.0
		for _, tj := range g.Trajectories {
			mean += (tj.Reward - 0.5*sums[tj.ID]) / float64(len(g.Trajectories))
		}
		for _, tj := range g.Trajectories {
			for _, u := range m.Samples {
				if u.Trajectory == tj.ID {
					at := slices.Index(tj.Samples[0].ResponseMask, true)
					require.InDelta(t, tj.Reward-0.5*sums[tj.ID]-mean, u.Advantages[at], 1e-5)
				}
			}
		}
	}
}

// brokenReference fails, or returns what no policy returns.
type brokenReference struct {
	logprobs []float32
	err      error
}

func (b brokenReference) Logprobs(batch *cgo.Batch, _ cgo.Neighbours) ([]float32, error) {
	if b.logprobs == nil {
		return nil, b.err
	}
	return slices.Repeat(b.logprobs, len(batch.RowToken)), nil
}

func TestBrokenReferences(t *testing.T) {
	p := policytest.Make(t, 1)
	c := tinyConfig()
	for _, f := range []struct {
		reference brokenReference
		want      string
	}{
		{brokenReference{err: errors.New("gone")}, "trainer: step 8: the reference policy: gone"},
		{brokenReference{logprobs: []float32{float32(math.NaN())}}, "the reference's logprob is NaN"},
		{brokenReference{logprobs: []float32{-1, -1}}, "the reference policy returned "},
	} {
		c.Reference = f.reference
		tr := makeTrainer(t, p, resolveBlock(t, "kl: {coefficient: 1}"), c)
		before := policytest.Parameters(t, p)
		_, err := tr.Step(context.Background(), someBatch(t, tr, 7, 0))
		require.ErrorContains(t, err, f.want)
		require.Equal(t, before, policytest.Parameters(t, p))
	}
}

// The critic's values are those of the state before each token, a truncated trajectory goes on from the value of its end,
// and repeated steps on the same rewards teach the head to foresee them.
func TestCritic(t *testing.T) {
	p := policytest.Make(t, 3)
	addCritic(t, p)
	c := tinyConfig()
	tr := makeTrainer(t, p, resolveBlock(t, "{advantage: {name: gae, lambda: 1}, value: {coefficient: 1, clip: 10}}"), c)
	b := someBatch(t, tr, 7, 0)
	ends := map[string]trajectory.StopReason{}
	for i, reason := range []trajectory.StopReason{trajectory.StopMaxTokens, trajectory.StopTruncated, trajectory.StopMaxTurns, trajectory.StopTerminated} {
		tj := b.Groups[1].Trajectories[i]
		tj.StopReason, ends[tj.ID] = reason, reason
	}
	plan, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	r := newStepRun(tr, plan, 0)
	require.NoError(t, r.early(context.Background()))
	for u, unit := range plan.units {
		s := plan.items[unit.items[0]].Sample
		want := valuesOf(t, p.Model, s)
		for i, on := range s.ResponseMask {
			if on {
				require.InDelta(t, want[i-1], plan.values[unit.items[0]][i], 1e-5)
			}
		}
		if reason := ends[unit.name]; reason == trajectory.StopMaxTokens || reason == trajectory.StopTruncated {
			require.InDelta(t, want[s.Len()-1], plan.bootstrap[u], 1e-5)
		} else {
			require.Zero(t, plan.bootstrap[u])
		}
	}
	first, err := tr.Step(context.Background(), b)
	require.NoError(t, err)
	last := first
	for range 30 {
		last, err = tr.Step(context.Background(), b)
		require.NoError(t, err)
	}
	require.Less(t, last.ValueLoss, first.ValueLoss/2)
	require.Greater(t, last.Explained, first.Explained)
}

// valuesOf are the critic's of the states behind each token of a sample, [T].
func valuesOf(t *testing.T, m *cgo.Model, s *trajectory.Sample) []float32 {
	t.Helper()
	batch := cgo.Batch{Tokens: s.TokenIDs, SegmentStart: []int32{0}, SegmentLength: []int32{int32(s.Len())}, SegmentParent: []int32{-1}, Temperature: 1}
	for i := range s.TokenIDs {
		batch.Positions = append(batch.Positions, int32(i))
		batch.RowToken = append(batch.RowToken, int32(i))
		batch.RowTarget = append(batch.RowTarget, 0)
	}
	n, err := m.Infer(&batch, cgo.ForwardOptions{Values: true})
	require.NoError(t, err)
	return n.Values
}

// gspo's s is the trajectory's: cut over micro-batches it is what one micro-batch would compute.
func TestSequenceRatioOfCutTrajectories(t *testing.T) {
	p := policytest.Make(t, 1)
	c := tinyConfig()
	c.MicroBatchTokens, c.minShared = 1, 1000
	tr := makeTrainer(t, p, resolveBlock(t, "{loss: gspo, correction: {kind: bypass}, mini_batches: 2}"), c)
	b := splitTurns(t, someBatch(t, tr, 5, 0.3))
	plan, err := newPlan(tr.algorithm, b)
	require.NoError(t, err)
	r := newStepRun(tr, plan, 0)
	require.NoError(t, plan.estimate(tr.algorithm))
	mb, err := r.packing.miniBatch(plan.miniBatches(1)[0], tr.algorithm)
	require.NoError(t, err)
	require.NotEmpty(t, mb.cut)
	require.NoError(t, tr.worker.Do(context.Background(), func() error { return r.rows.sequences(context.Background(), tr.model, cgo.Neighbours{}, mb) }))
	require.Len(t, r.rows.sequence, len(mb.cut))
	for u := range mb.cut {
		var current, sampling []float64
		for _, i := range plan.units[u].items {
			s := plan.items[i].Sample
			scores, err := tr.Logprobs(context.Background(), []*trajectory.Sample{s}, c.Temperature)
			require.NoError(t, err)
			for at, on := range s.ResponseMask {
				if on {
					current, sampling = append(current, float64(scores[0].Logprobs[at])), append(sampling, float64(s.SamplingLogprobs[at]))
				}
			}
		}
		want := algorithms.SequenceRatio(current, sampling)
		require.InDelta(t, want, r.rows.sequence[u], 1e-5)
		require.Greater(t, math.Abs(want-1), 1e-4)
	}
}

// With an adapter the reference is the same model with the adapter off: its base, whatever was trained since.
func TestAdapterOffIsTheBase(t *testing.T) {
	p, base := policytest.Make(t, 1), policytest.Make(t, 1)
	require.NoError(t, p.Model.AddAdapter(cgo.AdapterConfig{Rank: 2, Alpha: 8, Targets: []string{"q_proj", "down_proj"}}))
	c := tinyConfig()
	c.Reference = AdapterOff{p.Model}
	tr := makeTrainer(t, p, resolveBlock(t, "kl: {coefficient: 0.1}"), c)
	b := someBatch(t, tr, 7, 0)
	s := b.Groups[0].Trajectories[0].Samples[0]
	batches, err := Pack([]PackItem{{Sample: s}}, PackOptions{MicroBatchTokens: 100, Temperature: 1})
	require.NoError(t, err)
	want, err := FrozenModel{base.Model}.Logprobs(&batches[0].Batch, cgo.Neighbours{})
	require.NoError(t, err)
	for i := range 4 {
		m, err := tr.Step(context.Background(), b)
		require.NoError(t, err)
		require.Equal(t, i > 0, m.KL > 1e-9, "step %d: %v", i, m.KL) // the adapter begins as 0
		got, err := c.Reference.Logprobs(&batches[0].Batch, cgo.Neighbours{})
		require.NoError(t, err)
		require.Equal(t, want, got)
		on, err := FrozenModel{p.Model}.Logprobs(&batches[0].Batch, cgo.Neighbours{})
		require.NoError(t, err)
		require.NotEqual(t, want, on, "the adapter is on again")
	}
}

// A state is named by the observation before it, with the images in it: two that differ in those alone are two states.
func TestAnchorsTellMediaApart(t *testing.T) {
	image := func(sum byte) trajectory.Prefix {
		return trajectory.Prefix{IDs: []int32{7, 1, 300}, Media: []trajectory.Medium{{At: 1, Tokens: 1, Kind: trajectory.MediaImage, SHA256: trajectory.Digest{sum}}}}
	}
	text := trajectory.Prefix{IDs: []int32{7, 1, 300}}
	require.Equal(t, "3d39c1cd1d33bc4e88dde69aae6ba839c75c2483a9003b9877e2182f951c258e", hex.EncodeToString([]byte(anchor(text, 1))), "as before there were images")
	require.Equal(t, anchor(image(1), 1), anchor(image(1), 1))
	require.NotEqual(t, anchor(image(1), 1), anchor(image(2), 1))
	require.NotEqual(t, anchor(image(1), 1), anchor(text, 1))
	require.Equal(t, anchor(image(1), 2), anchor(text, 2), "it is before the observation")
}

// The forward has no place for media: it would train on their placeholders as on text.
func TestTrainerRefusesMedia(t *testing.T) {
	s := sampleOf([]int32{1, 2, 3}, "001")
	s.Media = []trajectory.Medium{{At: 1, Tokens: 1, Kind: trajectory.MediaImage, SHA256: trajectory.Digest{1}}}
	group := &trajectory.Group{Trajectories: []*trajectory.Trajectory{{ID: "train-3-0-0", Samples: []*trajectory.Sample{s}, Reward: 1}}}
	const says = "it has a medium (image) at token 1, and the trainer takes text only; train on text, or leave the trajectories with media out"
	_, err := newPlan(resolveBlock(t, "{}"), Batch{Step: 3, Groups: []*trajectory.Group{group}})
	require.EqualError(t, err, "trainer: step 4: trajectory train-3-0-0: "+says)
	_, err = ResponseLogprobs(t.Context(), nil, []*trajectory.Sample{s}, PackOptions{MicroBatchTokens: 10, Temperature: 1})
	require.EqualError(t, err, "trainer: logprobs: sample 0: "+says)
	_, err = new(Trainer).Logprobs(t.Context(), []*trajectory.Sample{s}, 1)
	require.EqualError(t, err, "trainer: logprobs: sample 0: "+says)
	group.Trajectories[0].Err = "gone"
	_, err = newPlan(resolveBlock(t, "{}"), Batch{Step: 3, Groups: []*trajectory.Group{group}})
	require.NoError(t, err, "nothing of it is trained")
}
