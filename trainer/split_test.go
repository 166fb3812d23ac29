//go:build torch

package trainer

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/trajectory"
)

// randomHistories is a batch of trajectories as agents over the gateway leave them: several samples, whose turns were sampled in turn.
func randomHistories(t *testing.T, rng *rand.Rand) Batch {
	var b Batch
	for range 1 + rng.IntN(3) {
		g := &trajectory.Group{}
		for range 2 + rng.IntN(3) {
			tr := &trajectory.Trajectory{Reward: float64(rng.IntN(5)) / 4, StopReason: trajectory.StopAnswer}
			for range 1 + rng.IntN(3) {
				tr.Samples = append(tr.Samples, &trajectory.Sample{})
			}
			for k := range len(tr.Samples) + rng.IntN(6) {
				turn := trajectory.Turn{Sample: k}
				if k >= len(tr.Samples) {
					turn.Sample = rng.IntN(len(tr.Samples))
				}
				s := tr.Samples[turn.Sample]
				s.AppendObservation([]int32{int32(rng.IntN(9)), 3}[:1+rng.IntN(2)])
				turn.CompletionStart = s.Len()
				for range 1 + rng.IntN(4) {
					require.NoError(t, s.AppendResponse([]int32{int32(rng.IntN(9))}, []float32{-rng.Float32()}, []int32{0}))
				}
				turn.CompletionEnd, turn.ObservationEnd = s.Len(), s.Len()
				if rng.IntN(4) == 0 {
					paid := float64(rng.IntN(3)) / 2
					turn.Reward = &paid
				}
				tr.Turns = append(tr.Turns, turn)
			}
			g.Trajectories = append(g.Trajectories, tr)
		}
		b.Groups = append(b.Groups, g)
	}
	return b
}

// splitAtRandom cuts samples between turns: each part has all that stood before it as its prompt, which is not trained.
func splitAtRandom(t *testing.T, rng *rand.Rand, b Batch) (out Batch) {
	for _, g := range b.Groups {
		group := &trajectory.Group{}
		for _, tr := range g.Trajectories {
			c := *tr
			c.Samples, c.Turns = nil, append([]trajectory.Turn(nil), tr.Turns...)
			for k, s := range tr.Samples {
				var part *trajectory.Sample
				for i, turn := range tr.Turns {
					if turn.Sample != k {
						continue
					}
					from, to := turn.CompletionStart, turn.CompletionEnd
					if part == nil || rng.IntN(2) == 0 {
						part = &trajectory.Sample{}
						c.Samples = append(c.Samples, part)
					}
					part.AppendObservation(s.TokenIDs[part.Len():from])
					require.NoError(t, part.AppendResponse(s.TokenIDs[from:to], s.SamplingLogprobs[from:to], s.PolicyVersion[from:to]))
					c.Turns[i].Sample = len(c.Samples) - 1
				}
			}
			group.Trajectories = append(group.Trajectories, &c)
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

// numbers are the advantage and the loss of each trained token, by trajectory and turn, and the loss of the batch.
func numbersOf(t *testing.T, a *algorithms.Algorithm, b Batch) (advantages, losses []float64, loss float64) {
	p, err := newPlan(a, b)
	require.NoError(t, err)
	for i, item := range p.items { // what a model would say depends on what stands before a token, which splitting does not change
		p.old[i] = make([]float64, item.Sample.Len())
		for at := range p.old[i] {
			p.old[i][at] = float64(item.Sample.SamplingLogprobs[at]) - 0.01*float64(item.Sample.TokenIDs[at])
		}
	}
	require.NoError(t, p.estimate(a))
	tokens := make([]int, len(p.units))
	for i, u := range p.units {
		tokens[i] = u.tokens
	}
	weights, err := a.Aggregation.TokenWeights(tokens)
	require.NoError(t, err)
	require.Len(t, p.units, len(tokens))
	for n, u := range p.units {
		tr := b.Groups[u.group].Trajectories[u.index]
		itemOf := map[int]int{}
		for k, s := range u.samples {
			itemOf[s] = u.items[k]
		}
		for _, turn := range tr.Turns {
			i := itemOf[turn.Sample]
			for at := turn.CompletionStart; at < turn.CompletionEnd; at++ {
				current := p.old[i][at] + 0.1*math.Sin(float64(at))
				l := -weights[n] * p.advantage[i][at] * math.Exp(current-p.old[i][at])
				advantages, losses, loss = append(advantages, p.advantage[i][at]), append(losses, l), loss+l
			}
		}
	}
	return advantages, losses, loss
}

// Cutting the samples of a trajectory into more changes no advantage, no token's loss and not their sum, whatever the estimator and the aggregation: what
// an agent does to its history decides how many samples there are, and must not decide what is learnt.
func TestSplittingSamplesChangesNothing(t *testing.T) {
	var all []*algorithms.Algorithm
	for _, block := range []string{
		"{}", "{advantage: rloo, aggregation: seq-mean-token-mean}", "{advantage: dr_grpo, aggregation: seq-mean-token-sum}", "{advantage: {name: turn, mode: identical}}",
		"{advantage: {name: turn, mode: first_occurrence}}", "{advantage: {name: turn, mode: discounted}}", "{advantage: opo, aggregation: seq-mean-token-sum-norm, max_tokens: 20}", "{advantage: {name: reinforce_pp, gamma: 0.9}}",
	} {
		all = append(all, resolveBlock(t, block))
	}
	for seed := range uint64(10_000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		a := all[seed%uint64(len(all))]
		b := randomHistories(t, rng)
		advantages, losses, loss := numbersOf(t, a, b)
		cut := splitAtRandom(t, rng, b)
		gotAdvantages, gotLosses, gotLoss := numbersOf(t, a, cut)
		require.InDeltaSlice(t, advantages, gotAdvantages, 1e-6, "seed %d", seed)
		require.InDeltaSlice(t, losses, gotLosses, 1e-6, "seed %d", seed)
		require.InDelta(t, loss, gotLoss, 1e-6, "seed %d", seed)
	}
}
